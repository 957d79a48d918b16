#![expect(clippy::disallowed_methods, reason = "shell: reads files again and again")]
//! The secure port's certificate: from files, which may change, or made here.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio::sync::watch;
use tracing::{info, warn};

use super::tls::TlsPolicy;

/// The names of the pair in `--cert-dir`.
const PAIR: &str = "cloud-controller-manager";
/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Where the certificate is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// Two PEM files.
    Files {
        /// The certificate and its chain.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
    /// `cloud-controller-manager.crt` and `.key` in a folder, made when they are missing.
    Folder(PathBuf),
    /// Self-signed, for this process only.
    Memory,
}

/// Why there is no certificate.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} holds no PEM block that can be used", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// Key and certificate do not fit, or cannot be used for TLS.
    #[error("certificate and key cannot be used")]
    Unusable(#[from] rustls::Error),
    /// No certificate could be made.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
}

/// A certificate with its key, PEM.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// The server's settings with the certificate of now.
#[derive(Debug)]
pub struct Certificates {
    policy: TlsPolicy,
    files: Option<(PathBuf, PathBuf)>,
    server: watch::Sender<Arc<ServerConfig>>,
}

impl Certificates {
    /// Reads or makes the certificate; one that is made names `localhost` and `address`.
    ///
    /// # Errors
    /// When the files are missing or wrong.
    pub fn open(source: &CertificateSource, policy: TlsPolicy, address: IpAddr) -> Result<Self, CertificateError> {
        let files = match source {
            CertificateSource::Files { certificate, key } => Some((certificate.clone(), key.clone())),
            CertificateSource::Folder(folder) => Some(in_folder(folder, address)?),
            CertificateSource::Memory => None,
        };
        let pair = match &files {
            Some((certificate, key)) => read(certificate, key)?,
            None => make(address)?,
        };
        let server = watch::Sender::new(Arc::new(server(&policy, &files, &pair)?));
        Ok(Self { policy, files, server })
    }

    /// The settings for the next connection.
    pub fn server(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.server.subscribe()
    }

    /// Follows the files until the future is dropped; files that are wrong leave the last good ones
    /// in force.
    pub async fn follow(self) {
        let Some((certificate, key)) = &self.files else { return std::future::pending().await };
        let (mut known, mut is_faulty) = (read(certificate, key).ok(), false);
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let renewed = read(certificate, key).and_then(|pair| {
                if known.as_ref() == Some(&pair) {
                    return Ok(None);
                }
                let server = server(&self.policy, &self.files, &pair)?;
                known = Some(pair);
                Ok(Some(server))
            });
            match renewed {
                Ok(None) => is_faulty = false,
                Ok(Some(server)) => {
                    is_faulty = false;
                    self.server.send_replace(Arc::new(server));
                    info!(certificate = %certificate.display(), "the secure port has a new certificate");
                }
                Err(error) if !std::mem::replace(&mut is_faulty, true) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "the secure port keeps its certificate: the new one cannot be used");
                }
                Err(_) => {}
            }
        }
    }
}

fn server(
    policy: &TlsPolicy,
    files: &Option<(PathBuf, PathBuf)>,
    pair: &Pair,
) -> Result<ServerConfig, CertificateError> {
    let (certificate, key) = files.clone().unwrap_or_default();
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pair.certificate).collect();
    let chain = chain.map_err(|source| CertificateError::Pem { path: certificate, source })?;
    let key = PrivateKeyDer::from_pem_slice(&pair.key).map_err(|source| CertificateError::Pem { path: key, source })?;
    Ok(policy.server(chain, key)?)
}

fn read(certificate: &Path, key: &Path) -> Result<Pair, CertificateError> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|source| CertificateError::File { path: path.to_owned(), source });
    Ok(Pair { certificate: read(certificate)?, key: read(key)? })
}

/// As upstream's `MaybeDefaultWithSelfSignedCerts`: a pair that is there is used, else one is written.
fn in_folder(folder: &Path, address: IpAddr) -> Result<(PathBuf, PathBuf), CertificateError> {
    let (certificate, key) = (folder.join(format!("{PAIR}.crt")), folder.join(format!("{PAIR}.key")));
    if !certificate.exists() || !key.exists() {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| CertificateError::File { path, source }
        };
        let pair = make(address)?;
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        write(&key, &pair.key, 0o600).map_err(failed(&key))?;
        write(&certificate, &pair.certificate, 0o644).map_err(failed(&certificate))?;
    }
    Ok((certificate, key))
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    io::Write::write_all(&mut file, bytes)
}

fn make(address: IpAddr) -> Result<Pair, CertificateError> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    if !address.is_unspecified() && !address.is_loopback() {
        names.push(address.to_string());
    }
    let signing_key = KeyPair::generate()?;
    let cert = CertificateParams::new(names)?.self_signed(&signing_key)?;
    Ok(Pair { certificate: cert.pem().into_bytes(), key: signing_key.serialize_pem().into_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_folder_gets_a_pair_once_and_keeps_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = CertificateSource::Folder(folder.path().join("new"));
        Certificates::open(&source, TlsPolicy::default(), LOCAL).expect("a certificate");
        let key = folder.path().join("new/cloud-controller-manager.key");
        let first = std::fs::read(&key).expect("a key");
        let mode = std::os::unix::fs::PermissionsExt::mode(&key.metadata().expect("a file").permissions());
        assert_eq!(mode & 0o777, 0o600);
        Certificates::open(&source, TlsPolicy::default(), LOCAL).expect("a certificate");
        assert_eq!(std::fs::read(&key).expect("a key"), first);
    }

    #[test]
    fn files_that_are_wrong_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = (folder.path().join("a.crt"), folder.path().join("a.key"));
        let source = CertificateSource::Files { certificate: certificate.clone(), key: key.clone() };
        let open = || Certificates::open(&source, TlsPolicy::default(), LOCAL).map(drop).map_err(|e| e.to_string());
        assert_eq!(open(), Err(format!("cannot use {}", certificate.display())));
        let pair = make(LOCAL).expect("a pair");
        std::fs::write(&certificate, &pair.certificate).expect("written");
        std::fs::write(&key, "nonsense").expect("written");
        assert_eq!(open(), Err(format!("{} holds no PEM block that can be used", key.display())));
        std::fs::write(&key, make(LOCAL).expect("a pair").key).expect("written");
        assert_eq!(open(), Err("certificate and key cannot be used".to_owned()), "another pair's key");
        std::fs::write(&key, &pair.key).expect("written");
        assert_eq!(open(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_certificate_is_noticed_and_a_broken_one_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = CertificateSource::Folder(folder.path().to_owned());
        let certificates = Certificates::open(&source, TlsPolicy::default(), LOCAL).expect("a certificate");
        let mut server = certificates.server();
        let first = Arc::clone(&server.borrow_and_update());
        let follow = certificates.follow();
        tokio::pin!(follow);
        let file = |ending: &str| folder.path().join(format!("{PAIR}.{ending}"));
        // Its first step is to learn what is there.
        tokio::select! { () = &mut follow => {}, () = tokio::task::yield_now() => {} }

        std::fs::write(file("crt"), "nonsense").expect("written");
        let waited = tokio::select! {
            () = &mut follow => false,
            waited = tokio::time::timeout(2 * LOOK_EVERY, server.changed()) => waited.is_err(),
        };
        assert!(waited && Arc::ptr_eq(&first, &server.borrow()), "the last good one stays");

        let pair = make(LOCAL).expect("a pair");
        std::fs::write(file("crt"), &pair.certificate).expect("written");
        std::fs::write(file("key"), &pair.key).expect("written");
        tokio::select! {
            () = &mut follow => {}
            changed = server.changed() => changed.expect("the sender is there"),
        }
        assert!(!Arc::ptr_eq(&first, &server.borrow()));
    }
}
