// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS 1.3 between hosts.

use std::path::Path;
use std::sync::Arc;

use ring::digest::{digest, SHA256};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{ring as provider, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme,
};

use crate::error::{file_error, Error};

/// RFC 9266.
pub const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// Bytes of a channel binding.
pub const BINDING_BYTES: usize = 32;

/// A client's trust in its server.
#[derive(Debug, Clone)]
pub enum ServerTrust {
    /// Its certificate was issued by one of these, for the name that is asked for.
    Authorities(std::path::PathBuf),
    /// Its certificate is this one: SHA-256 of its DER form.
    Pinned([u8; 32]),
}

/// A server's side. With `authorities` clients must show a certificate that one of them
/// issued.
///
/// # Errors
/// [`Error::File`], [`Error::Tls`].
pub fn server_tls(
    certificate: &Path,
    key: &Path,
    authorities: Option<&Path>,
) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(provider::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(authorities_of(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| file_error(path, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(certificates(certificate)?, private_key(key)?)
        .map_err(Error::Tls)?;
    // A greeting may go with the handshake: see `Greeted`. (Not where a client shows a
    // certificate: rustls waits for it.)
    config.send_half_rtt_data = true;
    Ok(Arc::new(config))
}

/// A server's side for clients that are known by their certificates' fingerprints (SHA-256).
/// A client without a certificate comes in as well, and must prove a token.
///
/// # Errors
/// [`Error::File`], [`Error::Tls`].
pub fn server_tls_pinned(
    certificate: &Path,
    key: &Path,
    clients: Vec<[u8; 32]>,
) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(provider::default_provider());
    let verifier = PinnedClients {
        clients,
        provider: Arc::clone(&provider),
    };
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(certificates(certificate)?, private_key(key)?)
        .map_err(Error::Tls)?;
    Ok(Arc::new(config))
}

/// A client's side, with a certificate of its own if there is one.
///
/// # Errors
/// [`Error::File`], [`Error::Tls`].
pub fn client_tls(
    trust: &ServerTrust,
    own: Option<(&Path, &Path)>,
) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(provider::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?;
    let builder = match trust {
        ServerTrust::Authorities(path) => {
            let roots = Arc::new(authorities_of(path)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| file_error(path, error.to_string()))?;
            builder.with_webpki_verifier(verifier)
        }
        ServerTrust::Pinned(fingerprint) => {
            let verifier = Arc::new(Pinned {
                fingerprint: *fingerprint,
                provider,
            });
            builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        }
    };
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
            .map_err(Error::Tls)?,
    };
    Ok(Arc::new(config))
}

/// SHA-256 of a certificate file's first certificate.
///
/// # Errors
/// [`Error::File`].
pub fn fingerprint_of(path: &Path) -> Result<[u8; 32], Error> {
    Ok(fingerprint(&certificates(path)?[0]))
}

/// A value that is the same on both ends of one TLS connection, and nowhere else.
///
/// # Errors
/// [`Error::Tls`] before the handshake is complete.
pub fn binding<T>(connection: &rustls::ConnectionCommon<T>) -> Result<Vec<u8>, Error> {
    connection
        .export_keying_material(vec![0; BINDING_BYTES], BINDING_LABEL, Some(&[]))
        .map_err(Error::Tls)
}

/// SHA-256 of a certificate.
pub fn fingerprint(certificate: &CertificateDer) -> [u8; 32] {
    let digest = digest(&SHA256, certificate);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let error = |error: rustls::pki_types::pem::Error| file_error(path, error.to_string());
    let all: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(error)?
        .collect::<Result<_, _>>()
        .map_err(error)?;
    match all.is_empty() {
        true => Err(file_error(path, "the file holds no certificate (PEM)")),
        false => Ok(all),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    use std::os::unix::fs::MetadataExt;
    let mode = std::fs::metadata(path).map(|metadata| metadata.mode());
    if mode.is_ok_and(|mode| mode & 0o007 != 0) {
        return Err(file_error(
            path,
            "other users can read this key: chmod 600 it",
        ));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| file_error(path, error.to_string()))
}

fn authorities_of(path: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| file_error(path, error.to_string()))?;
    }
    Ok(roots)
}

/// Accepts one pinned certificate, whatever its issuer and name.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match fingerprint(certificate) == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General(
            "only TLS 1.3 is spoken here".to_owned(),
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Accepts clients with one of some certificates, whatever their issuers and names.
#[derive(Debug)]
struct PinnedClients {
    clients: Vec<[u8; 32]>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for PinnedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.clients.contains(&fingerprint(certificate)) {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General(
            "only TLS 1.3 is spoken here".to_owned(),
        ))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
