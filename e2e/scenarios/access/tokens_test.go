//go:build e2e

package access

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// planted are the secrets that the scenarios know of, by what they are.
var planted struct {
	mu    sync.Mutex
	known map[string]string // what it is, by its text
}

// plant remembers a secret that must not be told.
func plant(t *testing.T, what, secret string) {
	t.Helper()
	if len(secret) < 16 {
		t.Fatalf("no %s was found to look for", what)
	}
	planted.mu.Lock()
	defer planted.mu.Unlock()
	if planted.known == nil {
		planted.known = map[string]string{}
	}
	planted.known[secret] = what
}

// registrationRE is a registration token, wherever a command has it.
var registrationRE = regexp.MustCompile(`\b[a-z0-9]{10}\.[A-Za-z0-9_-]{16,}`)

// jwtRE is a signed token.
var jwtRE = regexp.MustCompile(`eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`)

// TestNoTokenLeaks runs after the others, and looks for the secrets that they have used wherever others than their owners may look.
func TestNoTokenLeaks(t *testing.T) {
	host, u := inside.use(t)
	u.waitAnswer(t, time.Now(), longestWait)
	plantAll(t, host, u)
	places := map[string][]byte{
		"the objects of the hub's API": objects(t, func(args ...string) string {
			return shared.RunKubectl(t, shared.HubKubeconfig(), args...)
		}),
		"the objects of the cluster": objects(t, func(args ...string) string { return u.run(t, args...) }),
	}
	for _, h := range shared.Hosts() {
		var journal bytes.Buffer
		suite.Must(t, h.Logs(t.Context(), &journal))
		places["the journal of "+h.Name] = withoutSudo(journal.Bytes())
		collectFiles(t, places, h.Path("/var/log/pods"))
	}
	collectFiles(t, places, shared.LogDir())
	collectFiles(t, places, auditDir())
	for secret, what := range planted.known {
		for place, text := range places {
			if at := bytes.Index(text, []byte(secret)); at >= 0 {
				t.Errorf("%s is in %s: ...%s***", what, place, text[max(0, at-200):at])
			}
		}
		for _, command := range shownArguments.With(secret) {
			t.Errorf("%s is in the arguments of a program: %s", what, command)
		}
	}
	t.Logf("looked for %d secrets in %d places and the arguments of %d programs", len(planted.known), len(places), shownArguments.Len())
}

// plantAll finds the secrets that nobody has shown to the scenarios.
func plantAll(t *testing.T, host *hosts.Host, u user) {
	t.Helper()
	static := newUser(t, "static", u.kubectl)
	static.getKubeconfig(t, inside.key, "--static", "--ttl", "1h", "--description", "looked for")
	static.run(t, "get", "nodes")
	raw, err := os.ReadFile(static.kubeconfig())
	suite.Must(t, err)
	plant(t, "the token of a static kubeconfig", jwtRE.FindString(string(raw)))

	found := 0
	suite.Must(t, filepath.WalkDir(filepath.Join(u.home(), ".cache"), func(path string, _ fs.DirEntry, err error) error {
		raw, _ := os.ReadFile(path)
		if token := jwtRE.FindString(string(raw)); token != "" {
			found++
			plant(t, "a user's short token", token)
		}
		return err
	}))
	if found == 0 {
		t.Error("kubectl's plugin keeps no token")
	}
	credential := u.run(t, "-n", "cattle-system", "get", "secret", "cattle-cluster-agent-identity", "-o", "jsonpath={.data.credential}")
	text, err := base64.StdEncoding.DecodeString(credential)
	suite.Must(t, err)
	plant(t, "the credential of the cluster-agent", string(text))
	raw, err = os.ReadFile(host.Path("/var/lib/rancher/agent/rancher2_connection_info.json"))
	suite.Must(t, err)
	plant(t, "the machine's token", jwtRE.FindString(string(raw)))
	raw, err = shared.ClusterKubeconfig(context.Background(), shared.Hub, inside.key)
	suite.Must(t, err)
	plant(t, "the token of the kubeconfig Secret", jwtRE.FindString(string(raw)))
	raw, err = os.ReadFile(host.Path("/var/lib/rancher/k3s/server/token"))
	suite.Must(t, err)
	plant(t, "the cluster's join token", strings.TrimSpace(string(raw)))
}

// objects is everything in an API but Secrets, as kubectl shows it.
func objects(t *testing.T, kubectl func(args ...string) string) []byte {
	t.Helper()
	kinds := strings.Fields(kubectl("api-resources", "--verbs=list", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool { return kind == "secrets" })
	text := kubectl("get", strings.Join(kinds, ","), "-A", "-o", "json")
	list := struct {
		Items []json.RawMessage `json:"items"`
	}{}
	suite.Must(t, json.Unmarshal([]byte(text), &list))
	if len(list.Items) < 20 {
		t.Errorf("only %d objects were found", len(list.Items))
	}
	return []byte(text)
}

func collectFiles(t *testing.T, places map[string][]byte, dir string) {
	t.Helper()
	suite.Must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil // rotated away meanwhile
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // rotated away meanwhile
		}
		places[path] = raw
		return err
	}))
}

// withoutSudo takes out the lines in which sudo notes what its user has typed.
func withoutSudo(journal []byte) []byte {
	var out []byte
	for line := range bytes.Lines(journal) {
		if !bytes.Contains(line, []byte(" COMMAND=")) {
			out = append(out, line...)
		}
	}
	return out
}
