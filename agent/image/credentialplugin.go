package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	plugin "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/drover-dev/drover/agent/host/run"
)

// pluginTimeout is the kubelet's.
const pluginTimeout = time.Minute

// pluginResponseKind is the kind of a provider's response.
const pluginResponseKind = "CredentialProviderResponse"

// pluginCacheKeys are the cache keys of an image that a response may name, the most specific one first.
var pluginCacheKeys = []plugin.PluginCacheKeyType{
	plugin.ImagePluginCacheKeyType, plugin.RegistryPluginCacheKeyType, plugin.GlobalPluginCacheKeyType,
}

// pluginAuth holds credentials by patterns of images.
type pluginAuth = map[string]plugin.AuthConfig

// pluginRunner runs credential providers and caches their responses for as long as they allow.
type pluginRunner struct {
	options *Options

	mu     sync.Mutex
	cached map[string]cachedCredentials
}

type cachedCredentials struct {
	auth   pluginAuth
	expiry time.Time
}

// credentials returns the credentials of all providers for a repository, the best match first. A provider that fails is skipped with a
// warning.
func (r *pluginRunner) credentials(ctx context.Context, providers []provider, repo name.Repository) []authn.Authenticator {
	images := namesOf(repo)
	var all []authn.Authenticator
	for _, provider := range providers {
		i := slices.IndexFunc(images, func(image string) bool {
			return slices.ContainsFunc(provider.MatchImages, func(pattern string) bool { return matchImage(pattern, image) })
		})
		if i < 0 {
			continue
		}
		if needs := provider.TokenAttributes; needs != nil && needs.RequireServiceAccount != nil && *needs.RequireServiceAccount {
			r.options.Log.Warn("Skipping a credential provider that needs the service account of a Pod", "provider", provider.Name)
			continue
		}
		auth, err := r.getCachedOrRun(ctx, provider, images[i])
		if err != nil {
			r.options.Log.Warn("Credential provider failed", "provider", provider.Name, "image", images[i], "error", err)
			continue
		}
		for _, found := range matching(auth, images) {
			all = append(all, authn.FromConfig(authn.AuthConfig{Username: found.Username, Password: found.Password}))
		}
	}
	return all
}

// namesOf returns the names that a repository has in patterns, the usual one first.
func namesOf(repo name.Repository) []string {
	names := []string{repo.RegistryStr() + "/" + repo.RepositoryStr()}
	if repo.RegistryStr() == name.DefaultRegistry {
		names = slices.Insert(names, 0, dockerHub+"/"+repo.RepositoryStr())
	}
	return names
}

// matching returns the credentials whose keys match one of the images, in the kubelet's order: reverse by key, so that longer keys precede
// shorter ones, and those without globs precede those with.
func matching(auth pluginAuth, images []string) []plugin.AuthConfig {
	var all []plugin.AuthConfig
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(auth))) {
		pattern := strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
		if host, rest, found := strings.Cut(pattern, "/"); found && (rest == "v1/" || rest == "v2/" || rest == "") {
			pattern = host // as in Docker's configuration
		}
		if slices.ContainsFunc(images, func(image string) bool { return matchImage(pattern, image) }) {
			all = append(all, auth[key])
		}
	}
	return all
}

// getCachedOrRun runs a provider unless its last response for the image is still valid.
func (r *pluginRunner) getCachedOrRun(ctx context.Context, provider provider, image string) (pluginAuth, error) {
	keys := cacheKeys(image)
	for kind, key := range keys {
		keys[kind] = provider.Name + key
	}
	if auth, found := r.getCached(keys); found {
		return auth, nil
	}
	response, err := r.run(ctx, provider, image)
	if err != nil {
		return nil, err
	}
	duration := provider.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		duration = response.CacheDuration.Duration
	}
	if duration > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cached[keys[response.CacheKeyType]] = cachedCredentials{auth: response.Auth, expiry: time.Now().Add(duration)}
	}
	return response.Auth, nil
}

// cacheKeys are the ends of the keys by which a response for the image may be cached; they begin with the name of the provider.
func cacheKeys(image string) map[plugin.PluginCacheKeyType]string {
	registry, _, _ := strings.Cut(image, "/")
	keys := map[plugin.PluginCacheKeyType]string{plugin.ImagePluginCacheKeyType: image, plugin.RegistryPluginCacheKeyType: registry,
		plugin.GlobalPluginCacheKeyType: ""}
	for kind, scope := range keys {
		keys[kind] = "\x00" + string(kind) + "\x00" + scope
	}
	return keys
}

// forget drops what providers have answered for a repository. Its registry has refused that, though they allow it to be used for longer: a
// password may have been replaced.
func (r *pluginRunner) forget(repo name.Repository) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, image := range namesOf(repo) {
		for _, end := range cacheKeys(image) {
			maps.DeleteFunc(r.cached, func(key string, _ cachedCredentials) bool { return strings.HasSuffix(key, end) })
		}
	}
}

func (r *pluginRunner) getCached(keys map[plugin.PluginCacheKeyType]string) (pluginAuth, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.cached, func(_ string, c cachedCredentials) bool { return time.Now().After(c.expiry) })
	for _, kind := range pluginCacheKeys {
		if c, found := r.cached[keys[kind]]; found {
			return c.auth, true
		}
	}
	return nil, false
}

// run runs a provider. Its output may hold credentials and is never part of an error.
func (r *pluginRunner) run(ctx context.Context, provider provider, image string) (plugin.CredentialProviderResponse, error) {
	var none plugin.CredentialProviderResponse
	request, err := json.Marshal(plugin.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: provider.APIVersion, Kind: "CredentialProviderRequest"}, Image: image,
	})
	if err != nil {
		return none, err
	}
	env := slices.Clone(r.options.Environment)
	for _, variable := range provider.Env {
		env = append(env, variable.Name+"="+variable.Value)
	}
	result, err := r.options.Host.Run(ctx, run.Command{
		Path: filepath.Join(r.options.CredentialProviderBinDirectory, provider.Name), Args: provider.Args, Env: env,
		Dir: "/", Timeout: pluginTimeout, Stdin: request,
	})
	switch {
	case err != nil:
		return none, err
	case result.TimedOut:
		return none, fmt.Errorf("timed out after %s", pluginTimeout)
	case result.ExitCode != 0:
		return none, fmt.Errorf("exit code %d", result.ExitCode)
	}
	return decodeResponse(result.Stdout, provider.APIVersion)
}

// decodeResponse decodes the output of a provider. Its errors quote nothing of it.
func decodeResponse(raw []byte, apiVersion string) (plugin.CredentialProviderResponse, error) {
	var none, response plugin.CredentialProviderResponse
	if json.Unmarshal(raw, &response) != nil {
		return none, errors.New("output is not a " + pluginResponseKind)
	}
	switch {
	case response.APIVersion != apiVersion || response.Kind != pluginResponseKind:
		return none, fmt.Errorf("output is not a %s of %s", pluginResponseKind, apiVersion)
	case !slices.Contains(pluginCacheKeys, response.CacheKeyType):
		return none, errors.New("cacheKeyType of the output must be Image, Registry or Global")
	}
	return response, nil
}
