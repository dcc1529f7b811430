package render

import (
	"testing"

	"github.com/drover-dev/drover/plans"
)

func TestCapturedAddress(t *testing.T) {
	const info = `{"header":{},"members":[{"name":"other","clientURLs":["https://10.0.0.1:2379"]},{"name":"me-1","clientURLs":["https://[fd00::2]:2379"]},{"name":"learner"}]}`
	tests := map[string]struct{ info, name, want string }{
		"found":          {info + "\nmore", "me-1\n", "fd00::2"},
		"no such member": {info, "me-2", ""},
		"no URL":         {info, "learner", ""},
		"no name":        {info, "", ""},
		"no JSON":        {"curl: (7)", "me-1", ""},
		"nothing":        {"", "", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			outputs := map[string]plans.PeriodicOutput{captureAddress: {Stdout: []byte(tc.info)}, etcdName: {Stdout: []byte(tc.name)}}
			if got := CapturedAddress(outputs); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	if got := CapturedAddress(nil); got != "" {
		t.Errorf("got %q of nothing", got)
	}
}
