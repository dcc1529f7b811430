package config

import (
	"slices"
	"strings"
	"testing"
)

// TestRegistriesFiles: what the hub writes counts before the files of the distributions, also with another configuration directory.
func TestRegistriesFiles(t *testing.T) {
	const rke2, k3s = "/etc/rancher/rke2/registries.yaml", "/etc/rancher/k3s/registries.yaml"
	for file, want := range map[string][]string{
		"":                             {defaultRegistriesFile, rke2, k3s},
		"/etc/company/registries.yaml": {"/etc/company/registries.yaml", defaultRegistriesFile, rke2, k3s},
	} {
		c := Config{AgentRegistriesFile: file}
		c.setDefaults()
		if got := c.RegistriesFiles(); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", file, got, want)
		}
	}
}

func TestImageCacheBytes(t *testing.T) {
	c := Config{RemoteEnabled: true, ConnectionInfoFile: "/etc/rancher/agent/info.json", ImageCacheBytes: 1 << 30}
	c.setDefaults()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.ImageCacheBytes = -1
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "imageCacheBytes: must not be negative, got -1") {
		t.Errorf("got %v", err)
	}
}
