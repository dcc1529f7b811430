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
		"0.0.0.0:9099":              {err: `metricsAddress: "0.0.0.0:9099" is not of the loopback device; write 127.0.0.1:<port>`},
		":9099":                     {err: "is not of the loopback device"},
		"10.0.0.1:9099":             {err: "is not of the loopback device"},
		"hub.example.com:9099":      {err: "is not of the loopback device"},
		"127.0.0.1":                 {err: "is neither host:port nor unix:///path"},
		"127.0.0.1:0":               {err: "has no port from 1 to 65535"},
		"127.0.0.1:http":            {err: "has no port from 1 to 65535"},
		"unix://run/m.sock":         {err: "is not unix:// with a plain absolute path"},
		"unix:///run/../etc/m.sock": {err: "is not unix:// with a plain absolute path"},
		"unix:///m.sock":            {err: "at least two levels deep"},
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
