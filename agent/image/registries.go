package image

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"sigs.k8s.io/yaml"
)

// dockerHub is the name by which people and mirrors know the registry of images that name none (name.DefaultRegistry).
const dockerHub = "docker.io"

// Registries is the content of registries.yaml in the format of RKE2 and k3s (github.com/rancher/wharfie). Keys are hosts of registries,
// with or without port; "*" stands for all others.
type Registries struct {
	// Mirrors are other places of a registry's images.
	Mirrors map[string]Mirror `json:"mirrors"`
	// Configs are the credentials and certificates of hosts, mirrors included.
	Configs map[string]RegistryConfig `json:"configs"`
}

// Mirror names other places of a registry's images.
type Mirror struct {
	// Endpoints are URLs, which are tried in order and before the registry itself. The path replaces "/v2".
	Endpoints []string `json:"endpoint"`
	// Rewrites change the repository at the endpoints: regular expressions and their replacements.
	Rewrites map[string]string `json:"rewrite"`
}

// RegistryConfig configures the access to one host: a registry, a mirror, or where those redirect to.
type RegistryConfig struct {
	// Auth takes precedence over credential providers and the keychain.
	Auth *Auth `json:"auth"`
	// TLS configures certificates; without it the authorities of the machine are trusted.
	TLS *TLS `json:"tls"`
}

// Auth holds credentials: Username and Password, Auth, or IdentityToken.
type Auth struct {
	// Username and Password are those of basic authentication.
	Username string `json:"username"`
	// Password belongs to Username.
	Password string `json:"password"`
	// Auth is base64 of "username:password".
	Auth string `json:"auth"`
	// IdentityToken is an OAuth2 refresh token.
	IdentityToken string `json:"identity_token"`
}

// TLS names PEM files. CertFile and KeyFile are set together or not at all.
type TLS struct {
	// CAFile holds authorities that are trusted beside those of the machine.
	CAFile string `json:"ca_file"`
	// CertFile holds the client certificate that is presented to the server.
	CertFile string `json:"cert_file"`
	// KeyFile holds the private key of CertFile.
	KeyFile string `json:"key_file"`
	// InsecureSkipVerify turns off the verification of the server's certificate.
	InsecureSkipVerify bool `json:"insecure_skip_verify"`
}

func (t *TLS) validate() error {
	if t != nil && (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("cert_file and key_file must be set together")
	}
	return nil
}

// DecodeRegistries decodes a registries.yaml. Unknown keys are ignored.
func DecodeRegistries(raw []byte) (Registries, error) {
	var r Registries
	if err := yaml.Unmarshal(raw, &r); err != nil {
		return Registries{}, fmt.Errorf("decoding registries: %w", err)
	}
	return r, nil
}

// Validate names every invalid endpoint, rewrite and TLS configuration. RKE2, k3s and a Store ignore those endpoints and rewrites.
func (r Registries) Validate() error {
	var errs []error
	for host, mirror := range r.Mirrors {
		for i, text := range mirror.Endpoints {
			if _, err := parseEndpoint(text); err != nil {
				errs = append(errs, fmt.Errorf("mirrors[%q].endpoint[%d]: %w", host, i, err))
			}
		}
		for pattern := range mirror.Rewrites {
			if _, err := regexp.Compile(pattern); err != nil {
				errs = append(errs, fmt.Errorf("mirrors[%q].rewrite[%q]: %w", host, pattern, err))
			}
		}
	}
	for host, config := range r.Configs {
		if err := config.TLS.validate(); err != nil {
			errs = append(errs, fmt.Errorf("configs[%q].tls: %w", host, err))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// endpoint is one place that an image may come from.
type endpoint struct {
	// url has a scheme, a host, and the path that replaces "/v2".
	url url.URL
	// namespace is the registry that a mirror is asked for (the query parameter ns, as containerd sends it); empty for that registry itself.
	namespace string
	// repository is the image's repository at the endpoint.
	repository string
}

// endpoints returns the endpoints of an image in the order to try them, without duplicates.
func (r Registries) endpoints(repo name.Repository) []endpoint {
	registry, repository := repo.RegistryStr(), repo.RepositoryStr()
	var list []endpoint
	add := func(e endpoint) {
		if !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	if mirror, found := lookup(r.Mirrors, registry); found {
		rewritten := mirror.rewrite(repository)
		for _, text := range mirror.Endpoints {
			target, err := parseEndpoint(text)
			switch {
			case err != nil: // see Validate
			case target.Host == registry: // listed for its scheme or path, and not a mirror
				add(endpoint{url: target, repository: repository})
			default:
				add(endpoint{url: target, namespace: familiarName(registry), repository: rewritten})
			}
		}
	}
	if own, err := parseEndpoint(registry); err == nil {
		add(endpoint{url: own, repository: repository})
	}
	return list
}

// Hosts returns the hosts, with their ports, that an image may be pulled from, in the order in which they are asked. The last one is that
// of its registry.
func (r Registries) Hosts(image string) ([]string, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, e := range r.endpoints(ref.Context()) {
		hosts = append(hosts, e.url.Host)
	}
	return hosts, nil
}

// rewrite applies the first pattern, in the order of their text, that changes the repository into another valid one.
func (m Mirror) rewrite(repository string) string {
	for _, pattern := range slices.Sorted(maps.Keys(m.Rewrites)) {
		expression, err := regexp.Compile(pattern)
		if err != nil {
			continue
		}
		changed := expression.ReplaceAllString(repository, m.Rewrites[pattern])
		if changed == repository {
			continue
		}
		if _, err := name.NewRepository("a.example/" + changed); err == nil {
			return changed
		}
	}
	return repository
}

// familiarName returns the name of a registry as people write it.
func familiarName(registry string) string {
	if registry == name.DefaultRegistry {
		return dockerHub
	}
	return registry
}

// lookup returns the entry of a host: by its own name, by the other names it has, or by "*".
func lookup[T any](table map[string]T, host string) (T, bool) {
	names := []string{host}
	if host == name.DefaultRegistry {
		names = append(names, dockerHub, "registry-1."+dockerHub)
	} else if _, _, err := net.SplitHostPort(host); err != nil {
		names = append(names, host+":443", host+":80")
	}
	for _, candidate := range names {
		if entry, found := table[candidate]; found {
			return entry, true
		}
	}
	entry, found := table["*"]
	return entry, found
}

// redact makes an endpoint fit for a message: what precedes an @ may be a password, whether the rest is a URL or not.
func redact(text string) string {
	if _, rest, found := strings.Cut(text, "@"); found {
		return "…@" + rest[strings.LastIndex(rest, "@")+1:]
	}
	return text
}

// parseEndpoint parses an endpoint. Without a scheme it is https, but http for a port of this machine.
func parseEndpoint(text string) (url.URL, error) {
	full := text
	if !strings.Contains(full, "://") {
		full = "//" + full
	}
	target, err := url.Parse(full)
	switch {
	case err != nil:
		if syntax := (*url.Error)(nil); errors.As(err, &syntax) {
			err = syntax.Err // without the URL itself
		}
		return url.URL{}, fmt.Errorf("%q is not a URL: %w", redact(text), err)
	case target.Host == "":
		return url.URL{}, fmt.Errorf("%q has no host", redact(text))
	case target.Scheme == "" && isLocal(target.Hostname()) && target.Port() != "" && target.Port() != "443":
		target.Scheme = "http"
	case target.Scheme == "":
		target.Scheme = "https"
	case target.Scheme != "http" && target.Scheme != "https":
		return url.URL{}, fmt.Errorf("%q must start with http:// or https://", redact(text))
	}
	if _, err := name.NewRegistry(target.Host); err != nil {
		return url.URL{}, fmt.Errorf("%q: invalid host of a registry", redact(text))
	}
	prefix := path.Clean("/" + target.Path)
	if prefix == "/" {
		prefix = "/v2"
	}
	return url.URL{Scheme: target.Scheme, Host: target.Host, Path: prefix}, nil
}

func isLocal(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// repo returns the image's repository at the endpoint, for go-containerregistry.
func (e endpoint) repo() (name.Repository, error) {
	var options []name.Option
	if e.url.Scheme == "http" {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(e.url.Host, options...)
	if err != nil {
		return name.Repository{}, err
	}
	return registry.Repo(e.repository), nil
}
