//! A certificate authority for tests, and the certificates that it issues.

use std::ops::Range;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, PKCS_RSA_SHA256, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::harness::package;

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key in PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// Kinds and encodings of private keys.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    EcPkcs8,
    EcSec1,
    Ed25519,
    RsaPkcs8,
    RsaPkcs1,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Authority {
            issuer: CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// Issues a server certificate for these names and addresses, from the start of one year to that of another.
    pub fn server(&self, names: &[&str], valid: Range<i32>) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.pair(params, Key::EcPkcs8, valid)
    }

    /// Issues a client certificate of a kubelet.
    pub fn client(&self, key: Key, valid: Range<i32>) -> Pair {
        let mut params = CertificateParams::new([]).unwrap();
        let subject = &mut params.distinguished_name;
        subject.push(DnType::OrganizationName, "system:nodes");
        subject.push(DnType::CommonName, "system:node:node1");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.pair(params, key, valid)
    }

    fn pair(&self, mut params: CertificateParams, key: Key, valid: Range<i32>) -> Pair {
        params.not_before = date_time_ymd(valid.start, 1, 1);
        params.not_after = date_time_ymd(valid.end, 1, 1);
        let pair = key.make();
        let certificate = params.signed_by(&pair, &self.issuer).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key.write(&pair),
        }
    }
}

impl Key {
    fn make(self) -> KeyPair {
        match self {
            Key::EcPkcs8 | Key::EcSec1 => KeyPair::generate().unwrap(),
            Key::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap(),
            // Generating one takes long.
            Key::RsaPkcs8 | Key::RsaPkcs1 => {
                let path = package().join("tests/fixtures/keys/rsa.pem");
                let pem = std::fs::read_to_string(path).unwrap();
                KeyPair::from_pkcs8_pem_and_sign_algo(&pem, &PKCS_RSA_SHA256).unwrap()
            }
        }
    }

    fn write(self, key: &KeyPair) -> String {
        match self {
            Key::EcPkcs8 | Key::Ed25519 | Key::RsaPkcs8 => key.serialize_pem(),
            Key::EcSec1 => pem("EC PRIVATE KEY", inner(key.serialized_der())),
            Key::RsaPkcs1 => pem("RSA PRIVATE KEY", inner(key.serialized_der())),
        }
    }
}

impl Pair {
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes());
        chain.map(Result::unwrap).collect()
    }

    pub fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }

    /// Certificate and key in one file, as kubelets keep them.
    pub fn combined_pem(&self) -> String {
        format!("{}{}", self.certificate, self.key)
    }
}

/// The inner key of a PKCS #8 key, in PKCS #1 or SEC 1: the content of the octet string behind version and algorithm.
fn inner(pkcs8: &[u8]) -> &[u8] {
    let (content, _) = element(pkcs8);
    let (_version, rest) = element(content);
    let (_algorithm, rest) = element(rest);
    element(rest).0
}

/// The content of the first DER element, and the rest.
fn element(der: &[u8]) -> (&[u8], &[u8]) {
    let (header, length) = match der[1] {
        short @ 0..=0x7f => (2, usize::from(short)),
        0x81 => (3, usize::from(der[2])),
        _ => (4, usize::from(der[2]) << 8 | usize::from(der[3])),
    };
    der[header..].split_at(length)
}

fn pem(label: &str, der: &[u8]) -> String {
    let base64 = base64(der);
    let lines: Vec<_> = base64
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

pub fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
