//! A certificate authority for tests, and the certificates that it issues.

use std::ops::Range;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, SignatureAlgorithm,
    date_time_ymd,
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
        let (pair, written) = key.make();
        let certificate = params.signed_by(&pair, &self.issuer).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: written,
        }
    }
}

impl Key {
    /// Generates a key. Returns it with its PEM text.
    fn make(self) -> (KeyPair, String) {
        let generate = |algorithm| {
            let pair = KeyPair::generate_for(algorithm).unwrap();
            let written = pair.serialize_pem();
            (pair, written)
        };
        // The test's libraries cannot write the older encodings, and generating an RSA key takes long.
        let saved = |pkcs8: &str, algorithm: &'static SignatureAlgorithm, written: &str| {
            let folder = package().join("tests/fixtures/keys");
            let read = |name| std::fs::read_to_string(folder.join(name)).unwrap();
            let pair = KeyPair::from_pkcs8_pem_and_sign_algo(&read(pkcs8), algorithm);
            (pair.unwrap(), read(written))
        };
        match self {
            Key::EcPkcs8 => generate(&PKCS_ECDSA_P256_SHA256),
            Key::Ed25519 => generate(&PKCS_ED25519),
            Key::EcSec1 => saved("ec.pem", &PKCS_ECDSA_P256_SHA256, "ec-sec1.pem"),
            Key::RsaPkcs8 => saved("rsa.pem", &PKCS_RSA_SHA256, "rsa.pem"),
            Key::RsaPkcs1 => saved("rsa.pem", &PKCS_RSA_SHA256, "rsa-pkcs1.pem"),
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

pub fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
