package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMetricsAddress(t *testing.T) {
	tests := map[string]struct {
		want MetricsAddress
		err  string
	}{
		"":               {},
		"127.0.0.1:9099": {want: MetricsAddress{TCP: "127.0.0.1:9099"}},
		"127.3.0.1:1":    {want: MetricsAddress{TCP: "127.3.0.1:1"}},
		"[::1]:9099":     {want: MetricsAddress{TCP: "[::1]:9099"}},
		"localhost:9099": {want: MetricsAddress{TCP: "localhost:9099"}},
		"unix:///run/rancher-system-agent/m.sock": {want: MetricsAddress{Socket: "/run/rancher-system-agent/m.sock"}},
		"0.0.0.0:9099":              {err: `metricsAddress: "0.0.0.0:9099" must be a loopback address: use 127.0.0.1:<port>`},
		":9099":                     {err: "must be a loopback address"},
		"10.0.0.1:9099":             {err: "must be a loopback address"},
		"hub.example.com:9099":      {err: "must be a loopback address"},
		"127.0.0.1":                 {err: "must be host:port or unix:///path"},
		"127.0.0.1:0":               {err: "must have a port from 1 to 65535"},
		"127.0.0.1:http":            {err: "must have a port from 1 to 65535"},
		"unix://run/m.sock":         {err: "must be unix:// with a clean absolute path"},
		"unix:///run/../etc/m.sock": {err: "must be unix:// with a clean absolute path"},
		"unix:///m.sock":            {err: "below a directory other than /"},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := ParseMetricsAddress(text)
			if !checkError(t, err, test.err) {
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if got.String() != text {
				t.Errorf("written as %q", got)
			}
		})
	}
}
