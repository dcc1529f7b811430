package render

import (
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/hub/api/references"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// agentRegistriesPath is where the agent learns how to pull installer images.
const agentRegistriesPath = "/etc/rancher/agent/registries.yaml"

// registries is the content of registries.yaml, which agent, containerd's configuration of k3s and that of RKE2 read alike.
type registries struct {
	Mirrors map[string]mirror         `json:"mirrors,omitempty"`
	Configs map[string]registryConfig `json:"configs,omitempty"`
}

type mirror struct {
	Endpoint []string          `json:"endpoint,omitempty"`
	Rewrite  map[string]string `json:"rewrite,omitempty"`
}

type registryConfig struct {
	Auth *registryAuth `json:"auth,omitempty"`
	TLS  *registryTLS  `json:"tls,omitempty"`
}

type registryAuth struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	Auth          string `json:"auth,omitempty"`
	IdentityToken string `json:"identity_token,omitempty"`
}

type registryTLS struct {
	CAFile             string `json:"ca_file,omitempty"`
	CertFile           string `json:"cert_file,omitempty"`
	KeyFile            string `json:"key_file,omitempty"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify,omitempty"`
}

func (b *builder) registriesPath() string {
	return b.Cluster.names().ConfigDir + "/registries.yaml"
}

// addRegistries writes the cluster's registries for the agent, which reads them whenever it pulls, and for the distribution, which
// reads them when it starts.
func (b *builder) addRegistries() {
	spec := b.Cluster.Spec.Registries
	if spec == nil {
		spec = &rkev1.Registry{}
	}
	out := registries{Mirrors: map[string]mirror{}, Configs: map[string]registryConfig{}}
	for host, m := range spec.Mirrors {
		field := fmt.Sprintf("spec.rkeConfig.registries.mirrors[%q]", host)
		b.checkRegistryName(field, host)
		for _, pattern := range slices.Sorted(maps.Keys(m.Rewrites)) {
			if err := checkPattern(pattern); err != nil {
				b.problems.doubt(fmt.Sprintf("%s.rewrite[%q]", field, pattern), "has no effect: %s", err)
			}
		}
		out.Mirrors[host] = mirror{Endpoint: m.Endpoints, Rewrite: m.Rewrites}
	}
	for _, host := range slices.Sorted(maps.Keys(spec.Configs)) {
		config := spec.Configs[host]
		field := fmt.Sprintf("spec.rkeConfig.registries.configs[%q]", host)
		b.checkRegistryName(field, host)
		out.Configs[host] = registryConfig{
			Auth: b.registryAuth(field, host, config.AuthConfigSecretName),
			TLS:  b.registryTLS(field, host, config),
		}
	}
	b.addPullCredentials(out.Configs)
	if b.Cluster.Spec.Registries == nil && len(out.Configs) == 0 {
		return
	}
	content, err := encode(out)
	if err != nil {
		b.problems.fail("spec.rkeConfig.registries", "cannot be written as configuration: %s", err)
		return
	}
	own := b.args.text("private-registry")
	if own != "" && len(spec.Mirrors)+len(spec.Configs) == 0 {
		// Credentials of the hub alone do not replace the cluster's own registries: the agent gets both.
		b.add(plans.File{Path: agentRegistriesPath, Dynamic: true}, withCredentials(own, out.Configs, content))
		return
	}
	b.add(plans.File{Path: agentRegistriesPath, Dynamic: true}, content)
	if own != "" {
		b.problems.warn(b.fieldOf("private-registry"), "is replaced by spec.rkeConfig.registries and was left out")
	}
	// Written like any other file that an argument holds, so that the file has one owner.
	b.args["private-registry"] = string(content)
}

// withCredentials is the content of registries.yaml that a cluster has as an argument, with credentials for registries that it has none
// for. Where the argument is a path, or not such content, it returns other.
func withCredentials(own string, configs map[string]registryConfig, other []byte) []byte {
	content := map[string]any{}
	if isPath(own) || yaml.Unmarshal([]byte(own), &content) != nil {
		return other
	}
	merged, _ := content["configs"].(map[string]any)
	if merged == nil {
		merged = map[string]any{}
	}
	for host, config := range configs {
		if entry, _ := merged[host].(map[string]any); entry == nil {
			merged[host] = config
		} else if entry["auth"] == nil {
			entry["auth"] = config.Auth
		}
	}
	content["configs"] = merged
	encoded, err := encode(content)
	if err != nil {
		return other
	}
	return encoded
}

// checkPattern returns an error for what is no regular expression. It does not compile it: x{1000} takes a thousand times its length then,
// for each machine.
func checkPattern(pattern string) error {
	_, err := syntax.Parse(pattern, syntax.Perl)
	return err
}

// checkRegistryName reports a key by which neither agents nor containerd find a registry.
func (b *builder) checkRegistryName(field, host string) {
	if strings.Contains(host, "/") {
		b.problems.doubt(field, "has no effect: write the host of the registry alone, with a port where it has one, such as docker.io or "+
			"registry.example.com:5000")
	}
}

// registryTLS writes certificates to files and says how the registry's own is checked.
func (b *builder) registryTLS(field, host string, config rkev1.RegistryConfig) *registryTLS {
	out := registryTLS{InsecureSkipVerify: config.InsecureSkipVerify}
	dir := b.dataDir + "/etc/tls/registries/" + host + "/"
	if b.Machine.windows() {
		// A file's name cannot hold the colon of a port there.
		dir = b.dataDir + "/etc/tls/registries/" + strings.ReplaceAll(host, ":", "_") + "/"
	}
	if len(config.CABundle) > 0 {
		out.CAFile = dir + "ca.crt"
		b.add(plans.File{Path: out.CAFile}, config.CABundle)
	}
	if secret, ok := b.registrySecret(references.RegistryTLS, field+".tlsSecretName", config.TLSSecretName); ok {
		cert, key := secret.Data["tls.crt"], secret.Data["tls.key"]
		if len(cert) == 0 || len(key) == 0 {
			b.problems.fail(field+".tlsSecretName", "Secret %q needs the keys tls.crt and tls.key", config.TLSSecretName)
			return nil
		}
		out.CertFile, out.KeyFile = dir+"tls.crt", dir+"tls.key"
		b.add(plans.File{Path: out.CertFile}, cert)
		b.add(plans.File{Path: out.KeyFile}, key)
	}
	if out == (registryTLS{}) {
		return nil
	}
	return &out
}

// registrySecret finds the Secret that a field names, if it names one.
func (b *builder) registrySecret(rule references.Rule, field, name string) (Object, bool) {
	if name == "" {
		return Object{}, false
	}
	return b.refer(rule, field, Reference{Kind: KindSecret, Name: name})
}
