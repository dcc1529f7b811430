package config

import (
	"bytes"
	"path/filepath"
	"testing"
)

func FuzzConfig(f *testing.F) {
	f.Add("config.yaml", []byte("remoteEnabled: true\nconnectionInfoFile: /var/lib/rancher/agent/c.json\nworkDirectory: /a/work\n"+
		"instructionTimeout: 90s\n"))
	f.Add("config.json", []byte(`{"localEnabled":true,"localPlanDirectory":"/a/plans","metricsAddress":"127.0.0.1:1"}`))
	f.Fuzz(func(t *testing.T, name string, raw []byte) {
		var c Config
		if decode(name, raw, &c) != nil {
			return
		}
		c.setDefaults()
		if c.Validate() != nil {
			return
		}
		// What a plan's leftovers are removed from is never the root, nor right below it.
		for _, dir := range []string{c.WorkDirectory, c.StateDirectory} {
			if clean := filepath.Clean(dir); !filepath.IsAbs(clean) || filepath.Dir(clean) == "/" {
				t.Errorf("%q is accepted as work directory", dir)
			}
		}
	})
}

func FuzzConnection(f *testing.F) {
	f.Add("c.json", []byte(`{"kubeConfig":"k","namespace":"n","secretName":"s","planSigningKey":"AA==","more":{"a":[1]}}`))
	f.Add("c.yaml", []byte("kubeConfig: k\nnamespace: n\nsecretName: s\n"))
	f.Add("c.yaml", []byte("kubeConfig: k\nNamespace: n\nsecretNamE: s\n"))
	f.Fuzz(func(t *testing.T, name string, raw []byte) {
		var c Connection
		if decode(name, raw, &c) != nil || c.Validate() != nil {
			return
		}
		out, err := c.Encode(raw)
		if err != nil {
			return
		}
		var again Connection
		if err := decode("c.json", out, &again); err != nil || again != c {
			t.Errorf("%s becomes %s: %v", bytes.ToValidUTF8(raw, []byte("?")), out, err)
		}
	})
}

func FuzzMetricsAddress(f *testing.F) {
	f.Add("127.0.0.1:9796")
	f.Add("unix:///run/a/b.sock")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseMetricsAddress(text)
		if err == nil && (a == MetricsAddress{}) != (text == "") {
			t.Errorf("%q becomes %+v", text, a)
		}
	})
}
