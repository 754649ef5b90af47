//! Makes the reader and the printer of an object from one table of its members.

/// Implements [`Members`](super::Members) and [`PrintMembers`](super::PrintMembers) for a struct.
///
/// The table lists the members in the order in which they are printed. It either declares the
/// struct, or names one that exists:
///
/// ```text
/// object! { exact line
///     /// An entry.
///     #[derive(Default)]
///     struct Entry<'de> {
///         "since" with(read_moment, print_moment): since: Moment,
///         "suspect": suspect: Option<u64>,
///         ..owner: RawOwner<'de>
///     }
/// }
/// object! { any_case lines Pool { "Id": id, "Scope": scope.number, } }
/// ```
///
/// - Keys match in `any_case` or `exact`.
/// - The object is printed on one `line` or with one member per line (`lines`), or it is only
///   `read`.
/// - `with(read, print)` names functions to use instead of `Read::read` and `Print::print`.
/// - A member that is `None`, `false` or an empty list is not printed, unless it has `with`.
/// - `..field` stands for the members of another table. It may come first or last.
macro_rules! object {
    ($case:ident $layout:ident
        $(#[$meta:meta])* $vis:vis struct $name:ident $(<$life:lifetime $(, $item:ident)?>)? {
            $(..$first:ident: $first_type:ty,)?
            $($(#[$doc:meta])* $key:literal $(with($($with:path),+))?: $field:ident: $type:ty,)+
            $(..$last:ident: $last_type:ty)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name $(<$life $(, $item)?>)? {
            $(pub $first: $first_type,)?
            $($(#[$doc])* pub $field: $type,)+
            $(pub $last: $last_type,)?
        }
        $crate::codec::object! { $case $layout $name $(<$life $(, $item)?>)? {
            $(..$first,)? $($key $(with($($with),+))?: $field,)+ $(..$last)?
        } }
    };
    ($case:ident $layout:ident $name:ident { $($table:tt)+ }) => {
        $crate::codec::object!(@table $case $layout 'de [] [$name] $($table)+);
    };
    ($case:ident $layout:ident $name:ident<$life:lifetime $(, $item:ident)?> { $($table:tt)+ }) => {
        $crate::codec::object! {
            @table $case $layout $life [$($item)?] [$name<$life $(, $item)?>] $($table)+
        }
    };
    (@table $case:ident $layout:ident $life:lifetime [$($item:ident)?] [$type:ty]
        $(..$first:ident,)?
        $($key:literal $(with($read:path $(, $print:path)?))?: $($field:tt).+,)+
        $(..$last:ident)?
    ) => {
        impl<$life $(, $item: $crate::codec::Read<$life> + Default)?>
            $crate::codec::Members<$life> for $type
        {
            const NAMES: &'static [&'static str] = &[$($key),+];

            fn member(
                &mut self,
                key: &str,
                json: &mut $crate::codec::Cursor<$life>,
            ) -> Result<bool, $crate::codec::ParseError> {
                $(if self.$first.member(key, json)? {
                    return Ok(true);
                })?
                $(if $crate::codec::object!(@same $case key $key) {
                    $crate::codec::object!(@read json self.$($field).+ $(, $read)?)?;
                    return Ok(true);
                })*
                $(if self.$last.member(key, json)? {
                    return Ok(true);
                })?
                Ok(false)
            }
        }
        $crate::codec::object! { @print $layout $life [$($item)?] [$type]
            $(..$first,)?
            $($key: $($field).+ $($(, $print)?)?;)*
            $(..$last)?
        }
    };
    (@print read $($table:tt)*) => {};
    (@print $layout:ident $life:lifetime [$($item:ident)?] [$type:ty]
        $(..$first:ident,)?
        $($key:literal: $($field:tt).+ $(, $print:path)?;)+
        $(..$last:ident)?
    ) => {
        impl<$life $(, $item: $crate::codec::Print)?> $crate::codec::PrintMembers for $type {
            const IS_LINE: bool = $crate::codec::object!(@is_line $layout);

            fn print_members(&self, out: &mut $crate::codec::Out, layout: $crate::codec::Layout) {
                $(self.$first.print_members(out, layout);)?
                $($crate::codec::object!(@member out layout $key self.$($field).+ $(, $print)?);)*
                $(self.$last.print_members(out, layout);)?
            }
        }
    };
    (@is_line line) => { true };
    (@is_line lines) => { false };
    (@same any_case $found:ident $key:literal) => { $found.eq_ignore_ascii_case($key) };
    (@same exact $found:ident $key:literal) => { $found == $key };
    (@read $json:ident $value:expr) => { $crate::codec::Read::read(&mut $value, $json) };
    (@read $json:ident $value:expr, $read:path) => { $read(&mut $value, $json) };
    (@member $out:ident $layout:ident $key:literal $value:expr) => {
        if !$crate::codec::Print::is_absent(&$value) {
            $crate::codec::object!(@member $out $layout $key $value, $crate::codec::Print::print);
        }
    };
    (@member $out:ident $layout:ident $key:literal $value:expr, $print:path) => {
        $layout.item($out, |out, inside| {
            out.literal(concat!("\"", $key, "\": "));
            $print(&$value, out, inside);
        })
    };
}

pub(crate) use object;

#[cfg(test)]
mod tests {
    use crate::codec::{Cursor, Layout, Out, Print, Read};

    object! { exact lines
        #[derive(Default)]
        struct Outer {
            "name": name: String,
            "flag" with(Read::read, Print::print): flag: bool,
            "inner": inner: Option<Inner>,
            "list": list: Vec<Inner>,
        }
    }

    object! { exact line
        #[derive(Default)]
        struct Inner {
            ..owner: Owner,
            "at": at: u64,
            "absent": absent: bool,
        }
    }

    object! { any_case lines
        #[derive(Default)]
        struct Entry {
            "at": at: i64,
            ..owner: Owner
        }
    }

    object! { exact line
        #[derive(Default)]
        struct Owner { "id": id: Option<u64>, }
    }

    fn printed_again<T: for<'de> Read<'de> + Print + Default>(
        json: &str,
        layout: Layout,
    ) -> String {
        let mut value = T::default();
        value.read(&mut Cursor::new(json)).unwrap();
        let mut out = Out::default();
        value.print(&mut out, layout);
        String::from_utf8(out.into_bytes()).unwrap()
    }

    #[test]
    fn table_makes_reader_and_printer() {
        let laid_out = concat!(
            "{\n\t\"name\": \"a\",\n\t\"flag\": false,\n\t\"inner\": {\"id\": 7, \"at\": 1},",
            "\n\t\"list\": [\n\t\t{\"at\": 2},\n\t\t{\"at\": 3}\n\t]\n}",
        );
        assert_eq!(printed_again::<Outer>(laid_out, Layout::Lines(1)), laid_out);
        let line = r#"{"name": "a", "flag": true, "list": [{"at": 2}]}"#;
        assert_eq!(printed_again::<Outer>(line, Layout::Line), line);
        assert_eq!(
            printed_again::<Entry>(r#"{"id":5,"AT":-3,"ID":6,"x":[1]}"#, Layout::Line),
            r#"{"at": -3, "id": 5}"#,
            "each table has its own way to compare keys"
        );
        assert_eq!(
            printed_again::<Outer>("null", Layout::Lines(1)),
            "{\n\t\"name\": \"\",\n\t\"flag\": false\n}"
        );
    }
}
