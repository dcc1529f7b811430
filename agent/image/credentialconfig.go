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
	"time"

	kubelet "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"
)

const (
	credentialConfigKind  = "CredentialProviderConfig"
	credentialConfigGroup = "kubelet.config.k8s.io/"
	pluginGroup           = "credentialprovider.kubelet.k8s.io/"
)

// provider configures one credential provider.
type provider = kubelet.CredentialProvider

// apiVersions are those of both API groups. The fields that are used here are the same in all of them.
var apiVersions = []string{"v1", "v1beta1", "v1alpha1"}

func isVersionOf(group, apiVersion string) bool {
	version, found := strings.CutPrefix(apiVersion, group)
	return found && slices.Contains(apiVersions, version)
}

// decodeProviders decodes a CredentialProviderConfig and names every invalid field, by the kubelet's rules
// (pkg/credentialprovider/plugin/config.go of Kubernetes).
func decodeProviders(raw []byte) ([]provider, error) {
	var c kubelet.CredentialProviderConfig
	if err := yaml.Unmarshal(raw, &c); err != nil {
		if durations := durationErrors(raw); durations != nil {
			return nil, durations
		}
		return nil, fmt.Errorf("decoding: %w", err)
	}
	var errs []error
	invalid := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !isVersionOf(credentialConfigGroup, c.APIVersion) {
		invalid("apiVersion: must be %sv1, got %q", credentialConfigGroup, c.APIVersion)
	}
	if c.Kind != credentialConfigKind {
		invalid("kind: must be %s, got %q", credentialConfigKind, c.Kind)
	}
	if len(c.Providers) == 0 {
		invalid("providers: must not be empty; remove the file to use none")
	}
	names := map[string]bool{}
	for i, p := range c.Providers {
		invalid := func(format string, args ...any) { invalid("providers[%d].%w", i, fmt.Errorf(format, args...)) }
		switch {
		case p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ "):
			invalid("name: must be the name of a file, got %q", p.Name)
		case names[p.Name]:
			invalid("name: duplicate name %q", p.Name)
		}
		names[p.Name] = true
		if !isVersionOf(pluginGroup, p.APIVersion) {
			invalid("apiVersion: must be %sv1, got %q", pluginGroup, p.APIVersion)
		}
		if len(p.MatchImages) == 0 {
			invalid("matchImages: must not be empty")
		}
		for j, pattern := range p.MatchImages {
			if target, err := parseImage(pattern); err != nil || target.Host == "" {
				invalid("matchImages[%d]: must be a pattern like *.example.com:5000/path, got %q", j, pattern)
			}
		}
		switch {
		case p.DefaultCacheDuration == nil:
			invalid("defaultCacheDuration: must be set; 0s disables caching")
		case p.DefaultCacheDuration.Duration < 0:
			invalid("defaultCacheDuration: must not be negative, got %s", p.DefaultCacheDuration.Duration)
		}
		for j, env := range p.Env {
			if env.Name == "" || strings.ContainsAny(env.Name, "=\x00") {
				invalid("env[%d].name: must be the name of a variable, got %q", j, env.Name)
			}
		}
	}
	return c.Providers, errors.Join(errs...)
}

// durationErrors returns an error for each defaultCacheDuration that is no duration, since that of the decoder names no field.
func durationErrors(raw []byte) error {
	var c struct {
		Providers []struct {
			DefaultCacheDuration any `json:"defaultCacheDuration"`
		} `json:"providers"`
	}
	if yaml.Unmarshal(raw, &c) != nil {
		return nil
	}
	var errs []error
	for i, p := range c.Providers {
		text, isText := p.DefaultCacheDuration.(string)
		if _, err := time.ParseDuration(text); p.DefaultCacheDuration != nil && (!isText || err != nil) {
			errs = append(errs, fmt.Errorf("providers[%d].defaultCacheDuration: must be a duration with its unit, such as 12h, got %v", i,
				p.DefaultCacheDuration))
		}
	}
	return errors.Join(errs...)
}

// readProviders reads the credential providers from a file or a directory of files; without one there are none.
func (s *Store) readProviders() ([]provider, error) {
	if s.CredentialProviderConfig == "" {
		return nil, nil
	}
	files, err := s.providerFiles()
	if err != nil {
		return nil, fmt.Errorf("reading the credential providers: %w", err)
	}
	var all []provider
	fileOf := map[string]string{}
	for _, file := range files {
		raw, err := s.Host.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the credential providers: %w", err)
		}
		providers, err := decodeProviders(raw)
		if err != nil {
			return nil, fmt.Errorf("credential providers %s: %w", file, err)
		}
		for _, p := range providers {
			if other, found := fileOf[p.Name]; found {
				return nil, fmt.Errorf("credential providers %s: provider %q is in %s too", file, p.Name, other)
			}
			fileOf[p.Name] = file
		}
		all = append(all, providers...)
	}
	return all, nil
}

func (s *Store) providerFiles() ([]string, error) {
	info, err := s.Host.Lstat(s.CredentialProviderConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Dir:
		return []string{s.CredentialProviderConfig}, nil
	}
	names, err := s.Host.ReadDir(s.CredentialProviderConfig)
	var files []string
	for _, name := range names {
		if slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(name)) {
			files = append(files, filepath.Join(s.CredentialProviderConfig, name))
		}
	}
	return files, err
}

// parseImage parses an image or a pattern of images. url.Parse accepts no brackets in a host, so every glob that it accepts is valid.
func parseImage(text string) (*url.URL, error) { return url.Parse("https://" + text) }

// matchImage reports whether a pattern matches an image, by the kubelet's rules: the same number of parts in the domain, each of which may
// hold globs; the same port; and a path that the image's path starts with.
func matchImage(pattern, image string) bool {
	want, err := parseImage(pattern)
	if err != nil {
		return false
	}
	got, err := parseImage(image)
	if err != nil {
		return false
	}
	wantHost, wantPort := splitHost(want.Host)
	gotHost, gotPort := splitHost(got.Host)
	wantParts, gotParts := strings.Split(wantHost, "."), strings.Split(gotHost, ".")
	if wantPort != gotPort || len(wantParts) != len(gotParts) || !strings.HasPrefix(got.Path, want.Path) {
		return false
	}
	for i, part := range wantParts {
		if matched, err := path.Match(part, gotParts[i]); err != nil || !matched {
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
