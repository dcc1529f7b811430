package image

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"sigs.k8s.io/yaml"
)

// dockerHub is the name by which people and mirrors know the registry that is asked when an image names none.
const dockerHub = "docker.io"

// Registries is a registries.yaml, in the form that RKE2 and k3s read. Keys are hosts of registries; "*" stands for all others.
type Registries struct {
	Mirrors map[string]Mirror         `json:"mirrors"`
	Configs map[string]RegistryConfig `json:"configs"`
}

// Mirror tells where else images of a registry are found.
type Mirror struct {
	// Endpoints are tried in order, and the registry itself after them.
	Endpoints []string `json:"endpoint"`
	// Rewrites change the repository for the endpoints: a regular expression and what stands in its place.
	Rewrites map[string]string `json:"rewrite"`
}

// RegistryConfig tells how to talk to one host.
type RegistryConfig struct {
	Auth *Auth `json:"auth"`
	TLS  *TLS  `json:"tls"`
}

// Auth are credentials.
type Auth struct {
	Username string `json:"username"`
	Password string `json:"password"`
	// Auth is base64 of "username:password".
	Auth          string `json:"auth"`
	IdentityToken string `json:"identity_token"`
}

// TLS names files with certificates.
type TLS struct {
	CAFile             string `json:"ca_file"`
	CertFile           string `json:"cert_file"`
	KeyFile            string `json:"key_file"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify"`
}

// DecodeRegistries reads a registries.yaml. Unknown keys are ignored.
func DecodeRegistries(raw []byte) (Registries, error) {
	var r Registries
	if err := yaml.Unmarshal(raw, &r); err != nil {
		return Registries{}, fmt.Errorf("decoding registries: %w", err)
	}
	return r, nil
}

// Validate names every endpoint and rewrite that cannot be used. RKE2 and k3s pass over those and use the others; so does a Store.
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
		if config.TLS != nil && (config.TLS.CertFile == "") != (config.TLS.KeyFile == "") {
			errs = append(errs, fmt.Errorf("configs[%q].tls: cert_file and key_file go together", host))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// endpoint is one place an image may come from.
type endpoint struct {
	// url has a scheme, a host, and the path that stands for "/v2".
	url url.URL
	// namespace is the registry that a mirror is asked for; empty when the endpoint is that registry.
	namespace string
	// repository is the image's repository there.
	repository string
}

// endpoints are the places for an image, in the order to try them. The same place is not tried twice.
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
			case err != nil: // Validate names it
			case target.Host == registry:
				// It may be listed for its scheme or path; it is no mirror for that.
				add(endpoint{url: target, repository: repository})
			default:
				add(endpoint{url: target, namespace: familiar(registry), repository: rewritten})
			}
		}
	}
	if own, err := parseEndpoint(registry); err == nil {
		add(endpoint{url: own, repository: repository})
	}
	return list
}

// rewrite applies the first pattern, in the order of their text, that changes the repository into another one.
func (m Mirror) rewrite(repository string) string {
	patterns := make([]string, 0, len(m.Rewrites))
	for pattern := range m.Rewrites {
		patterns = append(patterns, pattern)
	}
	slices.Sort(patterns)
	for _, pattern := range patterns {
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

// familiar is the name of a registry as people write it.
func familiar(registry string) string {
	if registry == name.DefaultRegistry {
		return dockerHub
	}
	return registry
}

// lookup finds what is said about a host: by its own name, by the other names it has, or by "*".
func lookup[T any](table map[string]T, host string) (T, bool) {
	names := []string{host}
	if host == name.DefaultRegistry {
		names = append(names, dockerHub, "registry-1."+dockerHub)
	} else if _, _, err := net.SplitHostPort(host); err != nil {
		names = append(names, host+":443", host+":80")
	}
	for _, candidate := range append(names, "*") {
		if found, ok := table[candidate]; ok {
			return found, true
		}
	}
	var none T
	return none, false
}

// shown is an endpoint for a message. What stands before an @ may be a password, whether the rest is a URL or not.
func shown(text string) string {
	if _, rest, found := strings.Cut(text, "@"); found {
		return "…@" + rest[strings.LastIndex(rest, "@")+1:]
	}
	return text
}

// parseEndpoint reads an endpoint. Without a scheme it is https, but http for a port of this machine.
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
		return url.URL{}, fmt.Errorf("%q is not a URL: %w", shown(text), err)
	case target.Host == "":
		return url.URL{}, fmt.Errorf("%q names no host", shown(text))
	case target.Scheme == "" && isLocal(target.Hostname()) && target.Port() != "" && target.Port() != "443":
		target.Scheme = "http"
	case target.Scheme == "":
		target.Scheme = "https"
	case target.Scheme != "http" && target.Scheme != "https":
		return url.URL{}, fmt.Errorf("%q starts with neither http:// nor https://", shown(text))
	}
	if _, err := name.NewRegistry(target.Host); err != nil {
		return url.URL{}, fmt.Errorf("%q names no host that a registry can have", shown(text))
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

// repo is the image's repository at the endpoint.
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
