// Package dockerconfig reads Docker's configuration file, which is the content of Secrets of type kubernetes.io/dockerconfigjson.
package dockerconfig

import (
	"encoding/json"
	"maps"
	"strings"
)

// Auth holds the credentials for a registry.
type Auth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
}

// Find finds a host's credentials in Docker's configuration file, whose keys may be URLs.
func Find(raw []byte, host string) (Auth, bool) {
	var config struct {
		Auths map[string]Auth `json:"auths"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return Auth{}, false
	}
	if a, ok := config.Auths[host]; ok {
		return a, true
	}
	// Keys that mean the same host may differ; the first in order wins, so that the result does not depend on a map's order.
	var best string
	for key := range config.Auths {
		if Host(key) == Host(host) && (best == "" || key < best) {
			best = key
		}
	}
	a, ok := config.Auths[best]
	return a, ok
}

// Only returns a configuration file with the entries for a host alone, as they are; false where it has no credentials for the host.
func Only(raw []byte, host string) ([]byte, bool) {
	if auth, ok := Find(raw, host); !ok || auth == (Auth{}) {
		return nil, false
	}
	var config struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, false
	}
	maps.DeleteFunc(config.Auths, func(key string, _ json.RawMessage) bool { return Host(key) != Host(host) })
	only, err := json.Marshal(config)
	return only, err == nil
}

// Host strips scheme and path, and maps the names of Docker Hub to one.
func Host(key string) string {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	key, _, _ = strings.Cut(key, "/")
	switch key {
	case "index.docker.io", "registry-1.docker.io":
		return "docker.io"
	}
	return key
}
