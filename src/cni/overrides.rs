//! Parses `ipam.routes` and `ipam.dns`, which replace the default route and Azure's name server in
//! a result.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;
use serde_json::value::RawValue;

use super::error::{CallError, Key};
use crate::codec::{self, Cursor, ParseError, object};

/// A route for the pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Route {
    /// The destination.
    pub dst: IpNet,
    /// The gateway. Without one, the main plugin uses the gateway of the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    // The members below are new in version 1.1.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advmss: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<u32>,
}

impl Route {
    /// Creates a route to `dst` that has only a gateway.
    pub(super) fn to(dst: IpNet, gw: Option<IpAddr>) -> Route {
        Route {
            dst,
            gw,
            ..Route::default()
        }
    }

    /// Returns the route in the form of versions before 1.1.0.
    pub(super) fn plain(&self) -> Route {
        Route::to(self.dst, self.gw)
    }
}

/// How the pod resolves names.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Dns {
    /// The name servers, in the order in which they are queried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// The domains in which short names are searched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

#[derive(Default)]
struct RawRoute {
    dst: Option<IpNet>,
    route: Route,
}

object! { any_case read RawRoute {
    "dst" with(read_prefix): dst,
    "gw" with(read_gateway): route.gw,
    "mtu": route.mtu,
    "advmss": route.advmss,
    "priority": route.priority,
    "table": route.table,
    "scope": route.scope,
} }

fn read_prefix(target: &mut Option<IpNet>, json: &mut Cursor<'_>) -> Result<(), ParseError> {
    codec::text(target, json, |text| {
        text.parse()
            .map(Some)
            .map_err(|_| format!("{text:?} is not a prefix"))
    })
}

fn read_gateway(target: &mut Option<IpAddr>, json: &mut Cursor<'_>) -> Result<(), ParseError> {
    codec::text(target, json, |text| {
        text.parse()
            .map(Some)
            .map_err(|_| format!("{text:?} is not an address"))
    })
}

object! { any_case read Dns {
    "nameservers" with(codec::compound): nameservers,
    "domain": domain,
    "search" with(codec::compound): search,
    "options" with(codec::compound): options,
} }

/// Reads `ipam.routes`.
pub(super) fn routes(key: Key, raw: &RawValue) -> Result<Vec<Route>, CallError> {
    let items: Vec<Box<RawValue>> = key.parse(raw)?;
    items
        .iter()
        .map(|item| route(item))
        .collect::<Result<_, _>>()
        .map_err(|found| CallError::Invalid(key, found))
}

/// Reads an item of `ipam.routes`.
fn route(item: &RawValue) -> Result<Route, String> {
    let raw: RawRoute = codec::parse(item.get().as_bytes()).map_err(|e| e.to_string())?;
    Ok(Route {
        dst: raw.dst.ok_or("a route without dst")?,
        ..raw.route
    })
}

/// Reads `ipam.dns`.
pub(super) fn dns(key: Key, raw: &RawValue) -> Result<Dns, CallError> {
    codec::parse(raw.get().as_bytes()).map_err(|error| CallError::Invalid(key, error.to_string()))
}
