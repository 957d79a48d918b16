//! How TLS is spoken on the secure port.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, NamedGroup, ProtocolVersion, ServerConfig, SignatureScheme,
    SupportedCipherSuite, SupportedProtocolVersion,
};

/// The oldest version spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// What is offered to clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsPolicy {
    min_version: MinVersion,
    /// Suites of TLS 1.2; empty is all that are secure. Those of TLS 1.3 are not chosen, as in Go.
    cipher_suites: Vec<String>,
    /// Groups by their numbers, in order of preference; empty is all.
    groups: Vec<u16>,
}

impl TlsPolicy {
    /// Reads the values of `--tls-cipher-suites`, `--tls-min-version` and `--tls-curve-preferences`.
    ///
    /// # Errors
    /// Every value that is unknown or not spoken here.
    pub fn read(cipher_suites: &[String], min_version: &str, groups: &[u16]) -> Result<Self, Vec<String>> {
        let provider = ring::default_provider();
        let mut faults = Vec::new();
        let is_known = |name: &String| provider.cipher_suites.iter().any(|suite| is_called(suite, name));
        let unknown = cipher_suites.iter().filter(|name| !is_known(name));
        faults.extend(unknown.map(|name| format!("Cipher suite {name} not supported or doesn't exist")));
        let min_version = match min_version {
            "" | "VersionTLS12" => MinVersion::Tls12,
            "VersionTLS13" => MinVersion::Tls13,
            "VersionTLS10" | "VersionTLS11" => {
                faults.push(format!("--tls-min-version {min_version}: no version before VersionTLS12 is spoken"));
                MinVersion::Tls12
            }
            other => {
                faults.push(format!("unknown tls version {other:?}: it is VersionTLS12 or VersionTLS13"));
                MinVersion::Tls12
            }
        };
        let is_known = |group: &u16| provider.kx_groups.iter().any(|known| u16::from(known.name()) == *group);
        let unknown = groups.iter().filter(|group| !is_known(group));
        faults.extend(unknown.map(|group| format!("--tls-curve-preferences {group}: it is 23, 24 or 29")));
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self { min_version, cipher_suites: cipher_suites.to_vec(), groups: groups.to_vec() })
    }

    /// A server that shows a certificate and asks for the client's.
    ///
    /// # Errors
    /// When key and certificate do not fit.
    pub fn server(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<ServerConfig, Error> {
        let provider = Arc::new(self.provider());
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            MinVersion::Tls12 => &[&TLS13, &TLS12],
            MinVersion::Tls13 => &[&TLS13],
        };
        let asks = Arc::new(Asks { provider: Arc::clone(&provider) });
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(versions)?;
        let mut server = builder.with_client_cert_verifier(asks).with_single_cert(chain, key)?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(server)
    }

    fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.cipher_suites.is_empty() {
            provider.cipher_suites.retain(|suite| {
                suite.version().version == ProtocolVersion::TLSv1_3
                    || self.cipher_suites.iter().any(|name| is_called(suite, name))
            });
        }
        if !self.groups.is_empty() {
            let known = provider.kx_groups;
            let chosen = self.groups.iter().map(|number| NamedGroup::from(*number));
            let chosen = chosen.filter_map(|name| known.iter().copied().find(|group| group.name() == name));
            provider.kx_groups = chosen.collect();
        }
        provider
    }
}

/// Whether Go's flags call a suite by `name`.
fn is_called(suite: &SupportedCipherSuite, name: &str) -> bool {
    let own = format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
    own == name || own.strip_suffix("_SHA256").is_some_and(|own| own.ends_with("POLY1305") && own == name)
}

/// Takes any client certificate whose key the client has. Whether its issuer is one of ours is asked
/// with each request: without a certificate that is, a client may still have a token.
#[derive(Debug)]
struct Asks {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Asks {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_gos_names_and_every_fault_is_told() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let known = names(&[
            "TLS_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        ]);
        let policy = TlsPolicy::read(&known, "VersionTLS12", &[29, 23]).expect("known values");
        let provider = policy.provider();
        assert_eq!(provider.cipher_suites.len(), 3 + 3, "those of TLS 1.3 stay");
        let groups: Vec<_> = provider.kx_groups.iter().map(|group| u16::from(group.name())).collect();
        assert_eq!(groups, [29, 23]);

        let faults = TlsPolicy::read(&names(&["TLS_RSA_WITH_RC4_128_SHA"]), "SSL3", &[4588]).expect_err("faults");
        assert_eq!(
            faults,
            [
                "Cipher suite TLS_RSA_WITH_RC4_128_SHA not supported or doesn't exist",
                "unknown tls version \"SSL3\": it is VersionTLS12 or VersionTLS13",
                "--tls-curve-preferences 4588: it is 23, 24 or 29",
            ]
        );
    }
}
