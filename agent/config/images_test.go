package config

import (
	"strings"
	"testing"
)

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
