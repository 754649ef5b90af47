//! Prints Rust values as JSON, in the layouts of the state file.

use std::borrow::Cow;
use std::collections::BTreeMap;

use smol_str::SmolStr;

use super::{Out, go_json};

/// The layout of an object or a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All members or items on one line.
    Line,
    /// One member or item on each line, after this many tabs.
    Lines(usize),
}

impl Layout {
    /// Appends the two brackets with what `items` appends between them. The separator after the
    /// last item is removed.
    pub fn enclose(self, out: &mut Out, brackets: [u8; 2], items: impl FnOnce(&mut Out)) {
        let [open, close] = brackets;
        out.byte(open);
        let start = out.used();
        items(out);
        if out.used() > start {
            match self {
                Layout::Line => out.back(2),
                Layout::Lines(depth) => {
                    out.back(1);
                    go_json::line(out, depth - 1);
                }
            }
        }
        out.byte(close);
    }

    /// Appends a member or item with its separator. `print` gets the layout of the value.
    pub fn item(self, out: &mut Out, print: impl FnOnce(&mut Out, Layout)) {
        match self {
            Layout::Line => {
                print(out, self);
                out.literal(", ");
            }
            Layout::Lines(depth) => {
                go_json::line(out, depth);
                print(out, Layout::Lines(depth + 1));
                out.byte(b',');
            }
        }
    }
}

/// A value that can be printed.
pub trait Print {
    /// Appends the value.
    fn print(&self, out: &mut Out, layout: Layout);

    /// Returns whether a member with this value is omitted.
    fn is_absent(&self) -> bool {
        false
    }
}

/// An object that can be printed; `object!` implements it.
pub trait PrintMembers {
    /// Whether the object is always printed on one line.
    const IS_LINE: bool;

    /// Appends the members, each with its separator.
    fn print_members(&self, out: &mut Out, layout: Layout);
}

impl<T: PrintMembers> Print for T {
    fn print(&self, out: &mut Out, layout: Layout) {
        let own_layout = if T::IS_LINE { Layout::Line } else { layout };
        own_layout.enclose(out, *b"{}", |out| self.print_members(out, own_layout));
    }
}

macro_rules! scalars {
    ($($type:ty: $print:expr,)*) => {$(
        impl Print for $type {
            fn print(&self, out: &mut Out, _: Layout) {
                $print(out, self);
            }
        }
    )*};
}

scalars! {
    String: go_json::string,
    SmolStr: go_json::string,
    Cow<'_, str>: go_json::string,
    u64: |out, number: &u64| go_json::number(out, *number),
    i64: |out, number: &i64| go_json::number(out, *number),
}

impl Print for bool {
    fn print(&self, out: &mut Out, _: Layout) {
        out.literal(if *self { "true" } else { "false" });
    }

    fn is_absent(&self) -> bool {
        !self
    }
}

impl<T: Print> Print for Option<T> {
    fn print(&self, out: &mut Out, layout: Layout) {
        match self {
            Some(value) => value.print(out, layout),
            None => out.literal("null"),
        }
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T: Print> Print for Vec<T> {
    fn print(&self, out: &mut Out, layout: Layout) {
        layout.enclose(out, *b"[]", |out| {
            for item in self {
                layout.item(out, |out, inside| item.print(out, inside));
            }
        });
    }

    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

impl<T: Print> Print for BTreeMap<String, T> {
    fn print(&self, out: &mut Out, layout: Layout) {
        print_map(self, out, layout, T::print);
    }
}

/// Appends an object. `print` appends each value.
pub fn print_map<T>(
    map: &BTreeMap<String, T>,
    out: &mut Out,
    layout: Layout,
    print: impl Fn(&T, &mut Out, Layout),
) {
    layout.enclose(out, *b"{}", |out| {
        for (key, value) in map {
            layout.item(out, |out, inside| {
                go_json::string(out, key);
                out.literal(": ");
                print(value, out, inside);
            });
        }
    });
}
