package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent/config"
)

func TestRegistries(t *testing.T) {
	m := Machine{images: []string{"rancher/system-agent-installer-k3s:v1", "registry.example.com:5000/a@sha256:" + strings.Repeat("0", 64),
		"bad image"},
		Root: tree(t, map[string]string{"etc/rancher/k3s/registries.yaml": "mirrors:\n  docker.io:\n" +
			"    endpoint: [https://mirror.example.com/v2, 'other.example.com:5000']\n  '*':\n    endpoint: [https://cache.example.com]\n"})}
	const want = "[[mirror.example.com other.example.com:5000 index.docker.io] [cache.example.com registry.example.com:5000]]"
	if got := fmt.Sprint(m.registries()); got != want {
		t.Errorf("got %s", got)
	}
}

// TestDNSOfRegistries: on a machine that gets its images from a mirror or from archives, it is no problem that their registry has no
// address.
func TestDNSOfRegistries(t *testing.T) {
	const (
		mirrors = "mirrors:\n  docker.io:\n    endpoint: ['mirror.example.com:5000']\n"
		archive = "var/lib/rancher/agent/images/installer.tar.zst"
	)
	tests := map[string]struct {
		files map[string]string
		known []string
		want  string
	}{
		"registry": {known: []string{"index.docker.io"}, want: "ok DNS index.docker.io: registry, 10.0.0.1"},
		"nothing":  {want: "problem DNS index.docker.io: registry: no such host"},
		"mirror": {files: map[string]string{"etc/rancher/agent/registries.yaml": mirrors}, known: []string{"mirror.example.com"},
			want: "ok DNS mirror.example.com: registry, 10.0.0.1\nwarning DNS index.docker.io: registry: no such host"},
		"neither mirror nor registry": {files: map[string]string{"etc/rancher/agent/registries.yaml": mirrors},
			want: "problem DNS mirror.example.com: registry: no such host\nproblem DNS index.docker.io: registry: no such host"},
		"mirror with an address": {files: map[string]string{"etc/rancher/agent/registries.yaml": strings.Replace(mirrors,
			"mirror.example.com", "10.0.0.2", 1)}, want: "warning DNS index.docker.io: registry: no such host"},
		"archive": {files: map[string]string{archive: ""}, want: "warning DNS index.docker.io: registry: no such host"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := Machine{images: []string{"rancher/system-agent-installer-k3s:v1"}, Root: tree(t, test.files),
				Config: config.Config{ImagesDirectory: "/var/lib/rancher/agent/images"},
				LookupHost: func(_ context.Context, host string) ([]string, error) {
					if slices.Contains(test.known, host) {
						return []string{"10.0.0.1"}, nil
					}
					return nil, errors.New("no such host")
				}}
			if got := render(checkDNS(t.Context(), m)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}
