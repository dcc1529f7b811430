package install

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDownloadIsResumed has a hub that is busy, and connections that are cut off: over a slow link, the hub ends each after half an hour.
func TestDownloadIsResumed(t *testing.T) {
	const path = "/assets/system-agent-amd64"
	agent := agentBinary + strings.Repeat("# more of it\n", 1000)
	for name, test := range map[string]struct {
		ranges bool
		want   []string
	}{
		"resumed":           {ranges: true, want: []string{"", "", "bytes=5000-", "bytes=5000-"}},
		"no support for it": {want: []string{"", "", "bytes=5000-", "bytes=5000-", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			hub, m := newTestHub(t), newMachine(t)
			hub.publish("system-agent-amd64", agent)
			hub.asset = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != path {
					return false
				}
				switch requests := len(hub.requested(path)); {
				case requests == 1, requests == 3:
					http.Error(w, "busy", http.StatusServiceUnavailable)
				case requests == 2:
					w.Header().Set("Content-Length", strconv.Itoa(len(agent)))
					_, _ = io.WriteString(w, agent[:5000])
				case test.ranges:
					http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader(agent))
				default:
					return false
				}
				return true
			}
			if out, ok := m.run(hub.script(t), nil, "--token", "secret", "--worker"); !ok {
				t.Errorf("the script fails: %s", out)
			}
			if got := m.read("usr/local/bin/system-agent"); got != agent {
				t.Errorf("the agent has %d bytes, want %d", len(got), len(agent))
			}
			var ranges []string
			for _, request := range hub.requested(path) {
				ranges = append(ranges, request.Header.Get("Range"))
			}
			if diff := cmp.Diff(test.want, ranges); diff != "" {
				t.Errorf("ranges (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnotherFileIsNotContinued has a hub that is busy without a word, which loses nothing, and that is upgraded during a download: the two
// files are not put together.
func TestAnotherFileIsNotContinued(t *testing.T) {
	const path = "/assets/system-agent-amd64"
	earlier, agent := agentBinary+strings.Repeat("# earlier one\n", 1000), agentBinary+strings.Repeat("# later one\n", 1000)
	hub, m := newTestHub(t), newMachine(t)
	hub.publish("system-agent-amd64", agent)
	hub.asset = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		switch len(hub.requested(path)) {
		case 1:
			w.Header().Set("ETag", `"earlier"`)
			w.Header().Set("Content-Length", strconv.Itoa(len(earlier)))
			_, _ = io.WriteString(w, earlier[:5000])
		case 2:
			w.Header().Set("Retry-After", "77")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.Header().Set("ETag", `"later"`)
			http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader(agent))
		}
		return true
	}
	if out, ok := m.run(hub.script(t), []string{"CATTLE_AGENT_BINARY_CHECKSUM=" + digest(agent)}, "--token", "secret", "--worker"); !ok {
		t.Errorf("the script fails: %s", out)
	}
	if got := m.read("usr/local/bin/system-agent"); got != agent {
		t.Errorf("the agent has %d bytes, want %d", len(got), len(agent))
	}
	if calls := m.read("calls"); !strings.Contains(calls, "sleep 77\n") {
		t.Errorf("Retry-After is not obeyed:\n%s", calls)
	}
	var conditions []string
	for _, request := range hub.requested(path) {
		conditions = append(conditions, request.Header.Get("Range")+" "+request.Header.Get("If-Range"))
	}
	if diff := cmp.Diff([]string{" ", `bytes=5000- "earlier"`, `bytes=5000- "earlier"`, " "}, conditions); diff != "" {
		t.Errorf("ranges and conditions (-want +got):\n%s", diff)
	}
}
