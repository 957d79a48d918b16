//! Certificates and kubeconfigs: one authority a lab, elliptic curves because no prime has to be searched.

use std::path::{Path, PathBuf};

use anyhow::Result;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use super::address::API_SERVER_URL;

/// Signs for everyone in the lab, and keeps files in a folder.
pub(crate) struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// Who a client of the API server is.
#[derive(Clone, Copy)]
pub(crate) struct Identity<'a> {
    pub(crate) user: &'a str,
    pub(crate) group: Option<&'a str>,
}

impl Authority {
    pub(crate) fn make(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name_of(Identity { user: "lab", group: None });
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        std::fs::write(folder.join("ca.crt"), params.self_signed(&key)?.pem())?;
        Ok(Self { folder: folder.to_owned(), issuer: Issuer::new(params, key) })
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes `NAME.crt` and `NAME.key` for a server or a client.
    pub(crate) fn certify(&self, name: &str, identity: Identity<'_>, alternative_names: &[&str]) -> Result<()> {
        let names: Vec<String> = alternative_names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = name_of(identity);
        let key = KeyPair::generate()?;
        let certificate: Certificate = params.signed_by(&key, &self.issuer)?;
        std::fs::write(self.file(&format!("{name}.crt")), certificate.pem())?;
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem())?;
        Ok(())
    }

    /// Writes the pair of keys that ServiceAccount tokens are signed with and proven by.
    pub(crate) fn make_token_keys(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        std::fs::write(self.file("sa.key"), key.serialize_pem())?;
        std::fs::write(self.file("sa.pub"), key.public_key_pem())?;
        Ok(())
    }

    /// A kubeconfig for a client with a certificate of its own.
    pub(crate) fn kubeconfig(&self, name: &str, identity: Identity<'_>) -> Result<PathBuf> {
        self.certify(name, identity, &[])?;
        let (certificate, key) = (self.file(&format!("{name}.crt")), self.file(&format!("{name}.key")));
        let user = format!("client-certificate: {}, client-key: {}", certificate.display(), key.display());
        self.write_kubeconfig(name, &user)
    }

    /// A kubeconfig for a client with a bearer token.
    pub(crate) fn kubeconfig_with_token(&self, name: &str, token: &str) -> Result<PathBuf> {
        self.write_kubeconfig(name, &format!("token: {token}"))
    }

    fn write_kubeconfig(&self, name: &str, user: &str) -> Result<PathBuf> {
        let authority = self.file("ca.crt");
        let text = format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters: [{{name: lab, cluster: {{server: \"{API_SERVER_URL}\", certificate-authority: {}}}}}]\n\
             users: [{{name: lab, user: {{{user}}}}}]\n\
             contexts: [{{name: lab, context: {{cluster: lab, user: lab}}}}]\n\
             current-context: lab\n",
            authority.display()
        );
        let path = self.file(&format!("{name}.kubeconfig"));
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

fn name_of(identity: Identity<'_>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(group) = identity.group {
        name.push(DnType::OrganizationName, group);
    }
    name.push(DnType::CommonName, identity.user);
    name
}
