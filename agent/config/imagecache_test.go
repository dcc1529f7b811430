package config

import (
	"strings"
	"testing"
)

func TestImageCacheDirectory(t *testing.T) {
	for directory, want := range map[string]string{"": "/data/state", "/var/lib/x": "/var/lib/x"} {
		c := Config{RemoteEnabled: true, ConnectionInfoFile: "/etc/rancher/agent/info.json", WorkDirectory: "/data/work",
			ImageCacheDirectory: directory}
		c.setDefaults()
		if err := c.Validate(); err != nil || c.ImageCacheDirectory != want {
			t.Errorf("%q: got %s, %v", directory, c.ImageCacheDirectory, err)
		}
	}
	c := Config{RemoteEnabled: true, ConnectionInfoFile: "/etc/rancher/agent/info.json", ImageCacheDirectory: "/layers"}
	c.setDefaults()
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "imageCacheDirectory: must not be a top-level directory") {
		t.Errorf("got %v", err)
	}
}
