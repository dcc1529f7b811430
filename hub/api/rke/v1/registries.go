package v1

// Registry tells nodes where images come from; it becomes registries.yaml.
type Registry struct {
	// Mirrors are by registry host; "*" is for all others.
	// +optional
	// +nullable
	Mirrors map[string]Mirror `json:"mirrors,omitempty"`
	// Configs are by registry host, with port where there is one.
	// +optional
	// +nullable
	Configs map[string]RegistryConfig `json:"configs,omitempty"`
}

// Mirror is where to ask for images of a registry, and under what name.
type Mirror struct {
	// Endpoints are tried in order.
	// +optional
	// +nullable
	Endpoints []string `json:"endpoint,omitempty"`
	// Rewrites are regular expressions on image names, and what they become.
	// +optional
	// +nullable
	Rewrites map[string]string `json:"rewrite,omitempty"`
}

// RegistryConfig is how to reach a registry and who to be there.
type RegistryConfig struct {
	// AuthConfigSecretName names a Secret with username and password, auth, or identityToken.
	// +optional
	// +nullable
	AuthConfigSecretName string `json:"authConfigSecretName,omitempty"`
	// TLSSecretName names a Secret of type kubernetes.io/tls with a client certificate.
	// +optional
	// +nullable
	TLSSecretName string `json:"tlsSecretName,omitempty"`
	// CABundle are PEM certificates to trust.
	// +optional
	// +nullable
	CABundle []byte `json:"caBundle,omitempty"`
	// InsecureSkipVerify trusts any certificate.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}
