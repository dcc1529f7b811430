package image

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	config "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"
)

const (
	configKind  = "CredentialProviderConfig"
	configGroup = "kubelet.config.k8s.io/"
	pluginGroup = "credentialprovider.kubelet.k8s.io/"
)

// versions of both API groups; what they have in common is all that matters here.
var versions = []string{"v1", "v1beta1", "v1alpha1"}

// decodeProviders reads a CredentialProviderConfig, the kubelet's, and names every field that does not fit.
func decodeProviders(raw []byte) ([]config.CredentialProvider, error) {
	var c config.CredentialProviderConfig
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if version, found := strings.CutPrefix(c.APIVersion, configGroup); !found || !slices.Contains(versions, version) {
		wrong("apiVersion: is %q: write %sv1", c.APIVersion, configGroup)
	}
	if c.Kind != configKind {
		wrong("kind: is %q: write %s", c.Kind, configKind)
	}
	if len(c.Providers) == 0 {
		wrong("providers: is empty: name one, or remove the file")
	}
	names := map[string]bool{}
	for i, p := range c.Providers {
		wrong := func(format string, args ...any) { wrong("providers[%d].%w", i, fmt.Errorf(format, args...)) }
		switch {
		case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ "):
			wrong("name: %q is not the name of a file", p.Name)
		case names[p.Name]:
			wrong("name: %q is there twice", p.Name)
		}
		names[p.Name] = true
		if version, found := strings.CutPrefix(p.APIVersion, pluginGroup); !found || !slices.Contains(versions, version) {
			wrong("apiVersion: is %q: write %sv1", p.APIVersion, pluginGroup)
		}
		if len(p.MatchImages) == 0 {
			wrong("matchImages: is empty: name the images that the provider is for")
		}
		for j, pattern := range p.MatchImages {
			if err := checkPattern(pattern); err != nil {
				wrong("matchImages[%d]: %w", j, err)
			}
		}
		switch {
		case p.DefaultCacheDuration == nil:
			wrong("defaultCacheDuration: is missing: write 0s to keep nothing")
		case p.DefaultCacheDuration.Duration < 0:
			wrong("defaultCacheDuration: %s is less than nothing", p.DefaultCacheDuration.Duration)
		}
		for j, env := range p.Env {
			if env.Name == "" || strings.ContainsAny(env.Name, "=\x00") {
				wrong("env[%d].name: %q is no name of a variable", j, env.Name)
			}
		}
	}
	return c.Providers, errors.Join(errs...)
}

// providers reads the configuration, a file or a folder of them; without one there are none.
func (s *Store) providers() ([]config.CredentialProvider, error) {
	if s.CredentialProviderConfig == "" {
		return nil, nil
	}
	info, err := s.Host.Lstat(s.CredentialProviderConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	files := []string{s.CredentialProviderConfig}
	if err == nil && info.Dir {
		files = nil
		var names []string
		names, err = s.Host.ReadDir(s.CredentialProviderConfig)
		for _, name := range names {
			if ext := filepath.Ext(name); ext == ".json" || ext == ".yaml" || ext == ".yml" {
				files = append(files, filepath.Join(s.CredentialProviderConfig, name))
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the credential providers: %w", err)
	}
	var all []config.CredentialProvider
	seen := map[string]string{}
	for _, file := range files {
		raw, err := s.Host.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the credential providers: %w", err)
		}
		some, err := decodeProviders(raw)
		if err != nil {
			return nil, fmt.Errorf("credential providers %s: %w", file, err)
		}
		for _, p := range some {
			if other, found := seen[p.Name]; found {
				return nil, fmt.Errorf("credential providers %s: provider %q is in %s too", file, p.Name, other)
			}
			seen[p.Name] = file
		}
		all = append(all, some...)
	}
	return all, nil
}

// checkPattern tells what is wrong with a pattern for images. A URL has no brackets in its host, so every glob that is left is one.
func checkPattern(pattern string) error {
	target, err := parseImage(pattern)
	if err != nil || target.Host == "" {
		return fmt.Errorf("%q is no pattern like *.example.com:5000/path", pattern)
	}
	return nil
}

func parseImage(text string) (*url.URL, error) { return url.Parse("https://" + text) }

// matchImage tells whether a pattern fits an image, by the kubelet's rules: as many parts in the domain, each of which may hold globs; the
// same port; and a path with which that of the image begins.
func matchImage(pattern, image string) bool {
	want, err := parseImage(pattern)
	if err != nil {
		return false
	}
	have, err := parseImage(image)
	if err != nil {
		return false
	}
	wantHost, wantPort := splitHost(want.Host)
	haveHost, havePort := splitHost(have.Host)
	wantParts, haveParts := strings.Split(wantHost, "."), strings.Split(haveHost, ".")
	if wantPort != havePort || len(wantParts) != len(haveParts) || !strings.HasPrefix(have.Path, want.Path) {
		return false
	}
	for i, part := range wantParts {
		if matched, err := path.Match(part, haveParts[i]); err != nil || !matched {
			return false
		}
	}
	return true
}

func splitHost(text string) (host, port string) {
	if host, port, err := net.SplitHostPort(text); err == nil {
		return host, port
	}
	return text, ""
}
