package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

// registries is registries.yaml: where images of a registry are to be had, and how to log in there.
type registries struct {
	Mirrors map[string]struct {
		Endpoints []string          `json:"endpoint"`
		Rewrites  map[string]string `json:"rewrite"`
	} `json:"mirrors"`
	Configs map[string]struct {
		Auth *struct {
			Username      string `json:"username"`
			Password      string `json:"password"`
			Auth          string `json:"auth"`
			IdentityToken string `json:"identity_token"`
		} `json:"auth"`
		TLS *struct {
			CAFile             string `json:"ca_file"`
			CertFile           string `json:"cert_file"`
			KeyFile            string `json:"key_file"`
			InsecureSkipVerify bool   `json:"insecure_skip_verify"`
		} `json:"tls"`
	} `json:"configs"`
}

func readRegistries(file string) (registries, error) {
	var r registries
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = yaml.Unmarshal(raw, &r)
	}
	if err != nil {
		return r, fmt.Errorf("reading registries: %w", err)
	}
	return r, nil
}

// write writes containerd's hosts.toml of every registry.
func (r registries) write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	names := map[string]bool{}
	for name := range r.Mirrors {
		names[name] = true
	}
	for name := range r.Configs {
		names[name] = true
	}
	for name := range names {
		folder := name
		if name == "*" {
			folder = "_default"
		}
		if err := pki.WriteFile(filepath.Join(dir, folder, "hosts.toml"), []byte(r.hosts(name)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// hosts is the hosts.toml of one registry: its mirrors, then the registry itself.
func (r registries) hosts(name string) string {
	var b strings.Builder
	own := "https://" + name
	if name == "docker.io" {
		own = "https://registry-1.docker.io"
	}
	if name != "*" {
		fmt.Fprintf(&b, "server = %q\n", own+"/v2")
	}
	for _, e := range append(slices.Clone(r.Mirrors[name].Endpoints), r.itself(name, own)...) {
		u, err := url.Parse(e)
		if err != nil || u.Host == "" {
			u = &url.URL{Scheme: "https", Host: e}
		}
		if u.Path == "" || u.Path == "/" {
			u.Path = "/v2"
		}
		fmt.Fprintf(&b, "\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", u.String())
		if u.Path != "/v2" {
			b.WriteString("override_path = true\n")
		}
		tls := r.Configs[u.Host].TLS
		if tls == nil {
			continue
		}
		if tls.CAFile != "" {
			fmt.Fprintf(&b, "ca = [%q]\n", tls.CAFile)
		}
		if tls.CertFile != "" || tls.KeyFile != "" {
			fmt.Fprintf(&b, "client = [[%q, %q]]\n", tls.CertFile, tls.KeyFile)
		}
		if tls.InsecureSkipVerify {
			b.WriteString("skip_verify = true\n")
		}
	}
	return b.String()
}

// itself is the registry's own endpoint, if something is configured for it.
func (r registries) itself(name, own string) []string {
	if c, ok := r.Configs[name]; ok && c.TLS != nil && name != "*" {
		return []string{own}
	}
	return nil
}

// auth is the part of containerd's configuration with the credentials.
func (r registries) auth() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.Configs)) {
		a := r.Configs[name].Auth
		if a == nil {
			continue
		}
		fmt.Fprintf(&b, "\n[plugins.'io.containerd.cri.v1.images'.registry.configs.%q.auth]\n", name)
		for _, f := range []struct{ key, value string }{
			{"username", a.Username}, {"password", a.Password}, {"auth", a.Auth}, {"identitytoken", a.IdentityToken},
		} {
			if f.value != "" {
				fmt.Fprintf(&b, "%s = %q\n", f.key, f.value)
			}
		}
	}
	return b.String()
}
