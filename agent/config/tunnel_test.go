package config

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestTunnel(t *testing.T) {
	for _, test := range []struct {
		name, yaml string
		// want are prefixes of the errors, in order; none if the value is valid.
		want []string
	}{
		{name: "off", yaml: "{}"},
		{name: "off, with addresses", yaml: "{allow: ['127.0.0.1:10250']}"},
		{name: "on", yaml: "{enabled: true, allow: ['127.0.0.1:10250', '[::1]:22', 'kubelet.example:10250']}"},
		{name: "on, without addresses", yaml: "{enabled: true}", want: []string{"tunnel.allow: is required"}},
		{name: "wrong addresses",
			yaml: "{allow: ['127.0.0.1', ':22', 'a:0', 'a:70000', 'a:ssh', '169.254.169.254:80', '[::ffff:169.254.169.254]:80', " +
				"'[fe80::1%eth0]:80']}", want: []string{
				"tunnel.allow[0]: ", "tunnel.allow[1]: ", "tunnel.allow[2]: ", "tunnel.allow[3]: ", "tunnel.allow[4]: ", "tunnel.allow[5]: ",
				"tunnel.allow[6]: ", "tunnel.allow[7]: ",
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var tunnel Tunnel
			if err := yaml.Unmarshal([]byte(test.yaml), &tunnel); err != nil {
				t.Fatal(err)
			}
			var lines []string
			if err := tunnel.validate(true); err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(test.want) {
				t.Fatalf("got %q, want %q", lines, test.want)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, test.want[i]) {
					t.Errorf("got %q, want %q", line, test.want[i])
				}
			}
		})
	}
	if err := (Tunnel{Enabled: true, Allow: []string{"a:1"}}).validate(false); err == nil || !strings.HasPrefix(err.Error(),
		"tunnel.enabled: ") {
		t.Error(err)
	}
}
