// Package dockerconfig reads Docker's configuration file, which is the content of Secrets of type kubernetes.io/dockerconfigjson.
package dockerconfig

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Auth holds the credentials for a registry.
type Auth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
}

// Find finds the credentials for images of a registry, a host with a port or a path where it has one, in Docker's configuration file, whose
// keys may be URLs. As for kubelets, those for a path are for what is below it, and the longest path counts. Those for a part of what is
// below the registry count where there are no others; those for another path never do.
func Find(raw []byte, registry string) (Auth, bool) {
	var config struct {
		Auths map[string]Auth `json:"auths"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return Auth{}, false
	}
	if a, ok := config.Auths[registry]; ok {
		return a, true
	}
	// Keys that mean the same may differ; the first in order wins, so that the result does not depend on a map's order.
	best, rank := "", 0
	for _, key := range slices.Sorted(maps.Keys(config.Auths)) {
		switch {
		case Host(key) != Host(registry):
		case below(path(registry), keyPath(key)) && rank < 2+len(keyPath(key)):
			best, rank = key, 2+len(keyPath(key))
		case below(keyPath(key), path(registry)) && rank < 1:
			best, rank = key, 1
		}
	}
	if rank == 0 {
		return Auth{}, false
	}
	return config.Auths[best], true
}

// Only returns a configuration file with the entries for an image alone, as they are; false where it has no credentials for the image.
// Entries for another path of the same registry may be those of others.
func Only(raw []byte, image string) ([]byte, bool) {
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, false
	}
	found := false
	for key, entry := range config.Auths {
		var auth Auth
		if Host(key) != Host(image) || !below(path(image), keyPath(key)) || json.Unmarshal(entry, &auth) != nil {
			delete(config.Auths, key)
			continue
		}
		found = found || auth != (Auth{})
	}
	if !found {
		return nil, false
	}
	only, err := json.Marshal(config)
	return only, err == nil
}

// path is what follows the host of a registry, an image or a key; empty for nothing.
func path(of string) string {
	_, path, _ := strings.Cut(withoutScheme(of), "/")
	return strings.TrimSuffix(path, "/")
}

// keyPath is the path that a key is for: Docker writes the version of the registry's API after the host.
func keyPath(key string) string {
	path := path(key)
	for _, version := range []string{"v1", "v2"} {
		if rest, found := strings.CutPrefix(path+"/", version+"/"); found {
			return strings.TrimSuffix(rest, "/")
		}
	}
	return path
}

// below reports whether a path is another one, or begins with all parts of it.
func below(path, of string) bool {
	rest, found := strings.CutPrefix(path, of)
	return found && (of == "" || rest == "" || strings.ContainsRune("/:@", rune(rest[0])))
}

func withoutScheme(key string) string {
	return strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
}

// Host strips scheme and path, and maps the names of Docker Hub to one.
func Host(key string) string {
	key, _, _ = strings.Cut(withoutScheme(key), "/")
	switch key {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return key
}
