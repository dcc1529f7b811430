package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	config "k8s.io/kubelet/config/v1"
	plugin "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/drover-dev/drover/agent/host"
)

// pluginTimeout is the kubelet's.
const pluginTimeout = time.Minute

// plugins runs credential providers and remembers what they answered for as long as they allow.
type plugins struct {
	options *Options

	mu     sync.Mutex
	cached map[string]cachedAnswer
}

type cachedAnswer struct {
	auth  map[string]plugin.AuthConfig
	until time.Time
}

func newPlugins(options *Options) *plugins {
	return &plugins{options: options, cached: map[string]cachedAnswer{}}
}

// lookup gives the credentials of all providers for a repository, those that fit best first. A provider that fails gives none.
func (p *plugins) lookup(ctx context.Context, providers []config.CredentialProvider, repo name.Repository) []authn.Authenticator {
	images := namesOf(repo)
	var all []authn.Authenticator
	for _, provider := range providers {
		matches := func(image string) bool {
			return slices.ContainsFunc(provider.MatchImages, func(pattern string) bool { return matchImage(pattern, image) })
		}
		i := slices.IndexFunc(images, matches)
		if i < 0 {
			continue
		}
		if needs := provider.TokenAttributes; needs != nil && needs.RequireServiceAccount != nil && *needs.RequireServiceAccount {
			p.options.Log.Warn("A credential provider is passed over, since it needs the service account of a Pod", "provider", provider.Name)
			continue
		}
		auth, err := p.ask(ctx, provider, images[i])
		if err != nil {
			p.options.Log.Warn("A credential provider gives no credentials", "provider", provider.Name, "image", images[i], "error", err)
			continue
		}
		for _, found := range fitting(auth, images) {
			all = append(all, authn.FromConfig(authn.AuthConfig{Username: found.Username, Password: found.Password}))
		}
	}
	return all
}

// namesOf are the names that a repository goes by in patterns, the usual one first.
func namesOf(repo name.Repository) []string {
	names := []string{repo.RegistryStr() + "/" + repo.RepositoryStr()}
	if repo.RegistryStr() == name.DefaultRegistry {
		names = slices.Insert(names, 0, dockerHub+"/"+repo.RepositoryStr())
	}
	return names
}

// fitting are the credentials whose keys fit: longer keys before shorter ones, and those without globs before those with.
func fitting(auth map[string]plugin.AuthConfig, images []string) []plugin.AuthConfig {
	keys := make([]string, 0, len(auth))
	for key := range auth {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	slices.Reverse(keys)
	var all []plugin.AuthConfig
	for _, key := range keys {
		pattern := strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
		if host, rest, found := strings.Cut(pattern, "/"); found && (rest == "v1/" || rest == "v2/" || rest == "") {
			pattern = host // as Docker's configuration writes it
		}
		if slices.ContainsFunc(images, func(image string) bool { return matchImage(pattern, image) }) {
			all = append(all, auth[key])
		}
	}
	return all
}

// ask runs a provider, unless what it said before still counts.
func (p *plugins) ask(ctx context.Context, provider config.CredentialProvider, image string) (map[string]plugin.AuthConfig, error) {
	registry, _, _ := strings.Cut(image, "/")
	key := func(of plugin.PluginCacheKeyType, what string) string {
		return provider.Name + "\x00" + string(of) + "\x00" + what
	}
	keys := map[plugin.PluginCacheKeyType]string{
		plugin.ImagePluginCacheKeyType:    key(plugin.ImagePluginCacheKeyType, image),
		plugin.RegistryPluginCacheKeyType: key(plugin.RegistryPluginCacheKeyType, registry),
		plugin.GlobalPluginCacheKeyType:   key(plugin.GlobalPluginCacheKeyType, ""),
	}
	p.mu.Lock()
	for known, answer := range p.cached {
		if time.Now().After(answer.until) {
			delete(p.cached, known)
		}
	}
	for _, of := range []plugin.PluginCacheKeyType{plugin.ImagePluginCacheKeyType, plugin.RegistryPluginCacheKeyType, plugin.GlobalPluginCacheKeyType} {
		if answer, found := p.cached[keys[of]]; found {
			p.mu.Unlock()
			return answer.auth, nil
		}
	}
	p.mu.Unlock()
	response, err := p.run(ctx, provider, image)
	if err != nil {
		return nil, err
	}
	keep := provider.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		keep = response.CacheDuration.Duration
	}
	if keep > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cached[keys[response.CacheKeyType]] = cachedAnswer{auth: response.Auth, until: time.Now().Add(keep)}
	}
	return response.Auth, nil
}

// run runs a provider. What it writes is never shown: it may hold credentials.
func (p *plugins) run(ctx context.Context, provider config.CredentialProvider, image string) (plugin.CredentialProviderResponse, error) {
	var none plugin.CredentialProviderResponse
	request, err := json.Marshal(plugin.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: provider.APIVersion, Kind: "CredentialProviderRequest"}, Image: image,
	})
	if err != nil {
		return none, err
	}
	env := slices.Clone(p.options.Environment)
	for _, variable := range provider.Env {
		env = append(env, variable.Name+"="+variable.Value)
	}
	result, err := p.options.Host.Run(ctx, host.Command{
		Path: filepath.Join(p.options.CredentialProviderBinDirectory, provider.Name), Args: provider.Args, Env: env,
		Dir: "/", Timeout: pluginTimeout, Stdin: request,
	})
	switch {
	case err != nil:
		return none, err
	case result.TimedOut:
		return none, fmt.Errorf("it took longer than %s", pluginTimeout)
	case result.ExitCode != 0:
		return none, fmt.Errorf("it ended with exit code %d", result.ExitCode)
	}
	return decodeResponse(result.Stdout, provider.APIVersion)
}

// decodeResponse reads what a provider wrote. Its errors hold nothing of that.
func decodeResponse(raw []byte, apiVersion string) (plugin.CredentialProviderResponse, error) {
	var none, response plugin.CredentialProviderResponse
	if err := json.Unmarshal(raw, &response); err != nil {
		return none, errors.New("its answer is no CredentialProviderResponse")
	}
	switch {
	case response.APIVersion != apiVersion || response.Kind != "CredentialProviderResponse":
		return none, fmt.Errorf("its answer is not a CredentialProviderResponse of %s", apiVersion)
	case response.CacheKeyType != plugin.ImagePluginCacheKeyType && response.CacheKeyType != plugin.RegistryPluginCacheKeyType &&
		response.CacheKeyType != plugin.GlobalPluginCacheKeyType:
		return none, errors.New("cacheKeyType of its answer is none of Image, Registry and Global")
	}
	return response, nil
}
