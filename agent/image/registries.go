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

// DecodeRegistries reads a registries.yaml. Unknown keys are ignored; an endpoint or rewrite that cannot be used is an error that names
// it.
func DecodeRegistries(raw []byte) (Registries, error) {
	var r Registries
	if err := yaml.Unmarshal(raw, &r); err != nil {
		return Registries{}, fmt.Errorf("decoding registries: %w", err)
	}
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
	return r, errors.Join(errs...)
}

// endpoint is one place an image may come from.
type endpoint struct {
	// url has a scheme, a host, and the path that stands for "/v2".
	url url.URL
	// mirror is set for all but the registry itself.
	mirror bool
	// repository is the image's repository there.
	repository string
}

// endpoints are the places for an image, in the order to try them.
func (r Registries) endpoints(ref name.Reference) ([]endpoint, error) {
	registry, repository := ref.Context().RegistryStr(), ref.Context().RepositoryStr()
	var list []endpoint
	if mirror, found := lookup(r.Mirrors, registry); found {
		rewritten := mirror.rewrite(repository)
		for _, text := range mirror.Endpoints {
			target, err := parseEndpoint(text)
			if err != nil {
				return nil, err
			}
			list = append(list, endpoint{url: target, mirror: true, repository: rewritten})
		}
	}
	own, err := parseEndpoint(registry)
	if err != nil {
		return nil, err
	}
	return append(list, endpoint{url: own, repository: repository}), nil
}

// rewrite applies the first pattern, in the order of their text, that changes the repository.
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
		if changed := expression.ReplaceAllString(repository, m.Rewrites[pattern]); changed != repository {
			return changed
		}
	}
	return repository
}

// lookup finds what is said about a host: by its own name, by the other names it has, or by "*".
func lookup[T any](table map[string]T, host string) (T, bool) {
	names := []string{host}
	if host == name.DefaultRegistry {
		names = append(names, "docker.io")
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

// parseEndpoint reads an endpoint. Without a scheme it is https, but http for a port of this machine.
func parseEndpoint(text string) (url.URL, error) {
	full := text
	if !strings.Contains(full, "://") {
		full = "//" + full
	}
	target, err := url.Parse(full)
	switch {
	case err != nil:
		return url.URL{}, fmt.Errorf("%q is not a URL: %w", text, err)
	case target.Host == "":
		return url.URL{}, fmt.Errorf("%q names no host", text)
	case target.Scheme == "" && isLocal(target.Hostname()) && target.Port() != "" && target.Port() != "443":
		target.Scheme = "http"
	case target.Scheme == "":
		target.Scheme = "https"
	case target.Scheme != "http" && target.Scheme != "https":
		return url.URL{}, fmt.Errorf("%q starts with neither http:// nor https://", text)
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
