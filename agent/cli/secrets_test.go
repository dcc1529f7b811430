package cli

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/drover-dev/drover/plans"
)

// TestSecretsStayOutOfLogAndStatus puts a secret of its own into every place of a plan that can hold one, in plans that succeed, fail,
// and cannot even be read, and looks for each of them in all logs and notifications, at level trace. S4.
func TestSecretsStayOutOfLogAndStatus(t *testing.T) {
	m := newMachine(t)
	t.Setenv("CATTLE_LOGLEVEL", "trace")
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
		http.Error(w, "no", http.StatusUnauthorized)
	}))
	defer registry.Close()
	count := 0
	secret := func() string {
		count++
		return fmt.Sprintf("hunter%dhunter", count)
	}
	address := strings.TrimPrefix(registry.URL, "http://")
	m.write("registries.yaml", fmt.Sprintf("configs:\n  %q:\n    auth: {username: u, password: %s}\n", address, secret()))
	said := listenToNotify(t, m)

	encoded := func() string { return base64.StdEncoding.EncodeToString([]byte(secret())) }
	// Commands, paths and names are not secret; everything else is.
	deliveries := map[string]string{
		"everything, and it succeeds": fmt.Sprintf(`{"files":[{"path":%q,"content":%q}],
			"instructions":[{"name":"a","command":"sh","args":["-c","echo $X; echo $X >&2",%q],"env":["X=%s"],"saveOutput":true},
				{"name":"b","script":"#!/bin/sh\necho %s\n"}],
			"periodicInstructions":[{"name":"p","command":"sh","args":["-c","echo %s; echo %s >&2"],"env":["Y=%s"],"saveStderrOutput":true}],
			"probes":{"x":{"httpGet":{"url":"http://u:%s@127.0.0.1:1/p?token=%s"}}}}`,
			m.path("f"), encoded(), secret(), secret(), secret(), secret(), secret(), secret(), secret(), secret()),
		"an instruction fails": fmt.Sprintf(`{"instructions":[{"name":"a","command":"sh","args":["-c","echo %s >&2; exit 3"],"env":["X=%s"]}]}`,
			secret(), secret()),
		"no such command": fmt.Sprintf(`{"instructions":[{"name":"a","command":"no-such-command","args":[%q],"env":["X=%s"]}]}`, secret(),
			secret()),
		"no such image": fmt.Sprintf(`{"instructions":[{"name":"a","image":"%s/a:1","args":[%q],"env":["X=%s"]}]}`, address, secret(),
			secret()),
		"content is no base64": fmt.Sprintf(`{"files":[{"path":%q,"content":"%s!"}]}`, m.path("g"), secret()),
		"mode is none":         fmt.Sprintf(`{"files":[{"path":%q,"content":%q,"permissions":"rw"}]}`, m.path("g"), encoded()),
		"variable has no name": fmt.Sprintf(`{"instructions":[{"name":"a","command":"true","env":[%q]}]}`, secret()),
		"variable with a zero": fmt.Sprintf(`{"instructions":[{"name":"a","command":"true","env":["X=%s\u0000"],"args":["%s\u0000"]}]}`,
			secret(), secret()),
		"wrong type":            fmt.Sprintf(`{"files":[{"path":%q,"content":{"a":%q}}]}`, m.path("g"), secret()),
		"string for a number":   fmt.Sprintf(`{"files":[{"path":%q,"uid":%q}]}`, m.path("g"), secret()),
		"no JSON":               fmt.Sprintf(`{"instructions":[{"env":["X=%s"`, secret()),
		"no JSON at all":        secret(),
		"a folder in the way":   fmt.Sprintf(`{"files":[{"path":%q,"content":%q}]}`, m.dir, encoded()),
		"probe asks for a file": fmt.Sprintf(`{"probes":{"x":{"httpGet":{"url":"ftp://u:%s@x"}}}}`, secret()),
		"probe asks nobody":     fmt.Sprintf(`{"probes":{"x":{"httpGet":{"url":"http:///%s"}}}}`, secret()),
		"probe is no URL":       fmt.Sprintf(`{"probes":{"x":{"httpGet":{"url":"http://u:%s@:x:/%%zz"}}}}`, secret()),
	}
	m.start()
	for name, plan := range deliveries {
		m.hub.Deliver(plan)
		m.until("the end of "+name, func() bool {
			state := m.status().State
			return state == plans.StateSucceeded || state == plans.StateFailed
		})
		if want := name == "everything, and it succeeds"; want != (m.status().State == plans.StateSucceeded) {
			t.Errorf("%s: the state is %s", name, m.status().State)
		}
		if name == "everything, and it succeeds" {
			m.until("the periodic instruction", func() bool { return len(m.status().PeriodicOutput) > 0 })
		}
	}
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
	log := m.read("log")
	all := log + said()
	if !strings.Contains(all, "STATUS=") || strings.Count(log, "Plan ended") < 8 {
		t.Errorf("too little output to prove anything:\n%s", all)
	}
	for _, found := range regexp.MustCompile(`hunter\d+hunter`).FindAllString(all, -1) {
		for line := range strings.Lines(all) {
			if strings.Contains(line, found) {
				t.Errorf("%s is in: %s", found, line)
			}
		}
	}
	for i := range count {
		text := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "hunter%dhunter", i+1))
		if strings.Contains(all, text) {
			t.Errorf("secret %d is there in base64", i+1)
		}
	}
}

// listenToNotify records the notifications for the service manager.
func listenToNotify(t *testing.T, m *machine) func() string {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path("notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	const end = "all has been sent"
	var heard strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil || string(buf[:n]) == end {
				return
			}
			heard.Write(append(buf[:n:n], '\n'))
		}
	}()
	return func() string {
		last, err := net.Dial("unixgram", m.path("notify"))
		if err != nil {
			t.Fatal(err)
		}
		defer last.Close()
		if _, err := last.Write([]byte(end)); err != nil {
			t.Fatal(err)
		}
		<-done
		return heard.String()
	}
}
