package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/server/settings"
)

// tokenHub stands for the hub: it gives a token to whoever shows the secret of a kubeconfig.
type tokenHub struct {
	*httptest.Server
	asked int
	seen  []tokenRequest
	// ahead is by how much the clock of the hub is ahead of that of the user.
	ahead time.Duration
}

func newTokenHub(t *testing.T) *tokenHub {
	t.Helper()
	h := &tokenHub{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.asked++
		var request tokenRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != "/v3/tokens" {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer mine" {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"there is no cluster that you may reach"}`))
			return
		}
		h.seen = append(h.seen, request)
		_ = json.NewEncoder(w).Encode(issuedToken{Token: "t" + string(rune('0'+h.asked)), ExpiresAt: time.Now().Add(h.ahead + 15*time.Minute)})
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *tokenHub) authorities() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

// managementKubeconfig is by what the hub's Kubernetes knows a user; its server is not there.
func managementKubeconfig(t *testing.T, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["m"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1", ProxyURL: "http://127.0.0.1:1"}
	config.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: token}
	config.AuthInfos["other"] = &clientcmdapi.AuthInfo{Token: "not for the hub"}
	config.AuthInfos["as"] = &clientcmdapi.AuthInfo{Token: token, Impersonate: "bert"}
	for _, name := range []string{"me", "other", "as"} {
		config.Contexts[name] = &clientcmdapi.Context{Cluster: "m", AuthInfo: name}
	}
	config.CurrentContext = "other"
	path := filepath.Join(t.TempDir(), "management")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokenPlugin(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	hub := newTokenHub(t)
	kubeconfig := managementKubeconfig(t, "mine")
	run := func(args ...string) (code int, stdout, stderr string) {
		var out, err bytes.Buffer
		args = append([]string{
			"token", "--server", hub.URL, "--kubeconfig", kubeconfig, "--certificate-authority-data",
			base64.StdEncoding.EncodeToString(hub.authorities()),
		}, args...)
		code = Main(args, &out, &err)
		return code, out.String(), err.String()
	}

	code, out, stderr := run("--cluster", "c-m-a", "--context", "me")
	if code != 0 || !strings.Contains(out, `"token":"t1"`) || !strings.Contains(out, `"apiVersion":"client.authentication.k8s.io/v1"`) ||
		!strings.Contains(out, `"expirationTimestamp"`) {
		t.Fatalf("got %d %s %s", code, out, stderr)
	}
	if diff := cmp.Diff([]tokenRequest{{Cluster: "c-m-a", TTLSeconds: 900}}, hub.seen); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, again, _ := run("--cluster", "c-m-a", "--context", "me"); again != out || hub.asked != 1 {
		t.Errorf("the token is not kept: asked %d times, got %s", hub.asked, again)
	}
	if _, other, _ := run("--cluster", "c-m-b", "--context", "me"); !strings.Contains(other, `"token":"t2"`) {
		t.Errorf("another cluster gets %s", other)
	}
	// Whoever is somebody else now gets no token of who he was.
	kubeconfig2, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kubeconfig, bytes.ReplaceAll(kubeconfig2, []byte("mine"), []byte("theirs")), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, stderr := run("--cluster", "c-m-a", "--context", "me"); code != 1 || out != "" ||
		!strings.Contains(stderr, "there is no cluster that you may reach") {
		t.Errorf("got %d %s %s", code, out, stderr)
	}
	for _, tc := range []struct{ context, want string }{
		{"gone", `has no context "gone"`},
		{"as", `acts as bert`},
	} {
		if code, _, stderr := run("--cluster", "c-m-a", "--context", tc.context); code != 1 || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: got %d %s", tc.context, code, stderr)
		}
	}
}

// A clock that differs from that of the hub neither keeps a token beyond its end nor asks for one with each request.
func TestTokenClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		hub := newTokenHub(t)
		hub.ahead = ahead
		o := &tokenOptions{
			credential: credential{kubeconfig: managementKubeconfig(t, "mine"), context: "me"}, server: hub.URL, cluster: "c-m-a",
			authorities: base64.StdEncoding.EncodeToString(hub.authorities()),
		}
		now := time.Now()
		for _, tc := range []struct {
			after time.Duration
			asked int
		}{{0, 1}, {13 * time.Minute, 1}, {14*time.Minute + time.Second, 2}} {
			token, err := o.token(t.Context(), now.Add(tc.after))
			if err != nil {
				t.Fatal(err)
			}
			if left := token.ExpiresAt.Sub(now.Add(tc.after)); hub.asked != tc.asked || left < freshFor || left > 15*time.Minute {
				t.Errorf("the hub's clock is %s ahead: after %s it was asked %d times, and the token has %s left", ahead, tc.after, hub.asked, left)
			}
		}
	}
}

func TestTokenCache(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	now := time.Now().Truncate(time.Second)
	token := &issuedToken{Token: "x", ExpiresAt: now.Add(10 * time.Minute)}
	cache := newTokenCache("a", "b")
	if err := cache.write(token); err != nil {
		t.Fatal(err)
	}
	if got := cache.read(now); got == nil || got.Token != "x" {
		t.Errorf("it is not kept: %v", got)
	}
	if got := cache.read(now.Add(9*time.Minute + time.Second)); got != nil {
		t.Error("it is given out until its end")
	}
	if got := newTokenCache("ab", "").read(now); got != nil {
		t.Error("another question gets it")
	}
	info, err := os.Stat(cache.path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its file is %v (%v)", info.Mode(), err)
	}
	if info, err = os.Stat(filepath.Dir(cache.path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder is %v (%v)", info.Mode(), err)
	}
	if err := os.Chmod(cache.path, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := cache.read(now); got != nil {
		t.Error("what others could have read is given out")
	}
}

// A kubeconfig for people holds no secret, and names the context of the credential.
func TestKubeconfigUser(t *testing.T) {
	hub := newTokenHub(t)
	path := managementKubeconfig(t, "mine")
	o := &kubeconfigOptions{connection: connection{kubeconfig: path}, ttl: time.Hour}
	about := settings.Settings{ServerURL: hub.URL, CACerts: hub.authorities()}
	user, err := o.user(t.Context(), about, "c-m-a")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"token", "--server", hub.URL, "--cluster", "c-m-a", "--kubeconfig", path, "--context", "other",
		"--certificate-authority-data", base64.StdEncoding.EncodeToString(hub.authorities()),
	}
	if diff := cmp.Diff(want, user.Exec.Args); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if user.Token != "" || user.Exec.InteractiveMode != clientcmdapi.NeverExecInteractiveMode || !filepath.IsAbs(user.Exec.Command) ||
		hub.asked > 0 {
		t.Errorf("got %+v", user)
	}
}

func TestKubeconfigFiles(t *testing.T) {
	user := &clientcmdapi.AuthInfo{Token: "t"}
	config := proxied(client.ObjectKey{Namespace: "fleet", Name: "demo"}, settings.Settings{ServerURL: "https://hub"}, "c-m-a", user)
	dir := t.TempDir()
	path := filepath.Join(dir, "config")
	existing := clientcmdapi.NewConfig()
	existing.Contexts["mine"] = &clientcmdapi.Context{Cluster: "mine", AuthInfo: "mine"}
	existing.CurrentContext = "mine"
	if err := clientcmd.WriteToFile(*existing, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	o := &kubeconfigOptions{output: link, merge: true}
	for range 2 {
		if err := o.write(config, nil, &stderr); err != nil {
			t.Fatal(err)
		}
	}
	got, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.CurrentContext != "mine" || got.Contexts["mine"] == nil || got.Contexts["fleet/demo"] == nil ||
		got.Clusters["fleet/demo"].Server != "https://hub/k8s/clusters/c-m-a" {
		t.Errorf("the file holds %+v", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v (%v)", info.Mode(), err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a file with a token is %v (%v)", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("something was left behind: %v", entries)
	}
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.write(config, nil, &stderr); err == nil || !strings.Contains(err.Error(), "somebody else writes") {
		t.Errorf("a locked file: %v", err)
	}
	o.merge = false
	if err := o.write(config, nil, &stderr); err != nil {
		t.Fatal(err)
	}
	if got, err = clientcmd.LoadFromFile(path); err != nil || len(got.Contexts) != 1 || got.CurrentContext != "fleet/demo" {
		t.Errorf("the file holds %+v (%v)", got, err)
	}
}

// Two hubs may have a cluster of the same name. The context of the one does not become that of the other.
func TestKubeconfigOfAnotherHub(t *testing.T) {
	o := &kubeconfigOptions{output: filepath.Join(t.TempDir(), "config"), merge: true}
	for _, tc := range []struct{ hub, management, want string }{
		{"https://one:8443", "c-m-a", ""},
		{"https://one:8443", "c-m-b", ""}, // the cluster was created again
		{"https://two:8443", "c-m-c", "has an entry fleet/demo for one:8443 already, and the new one is for two:8443"},
	} {
		config := proxied(client.ObjectKey{Namespace: "fleet", Name: "demo"}, settings.Settings{ServerURL: tc.hub}, tc.management,
			&clientcmdapi.AuthInfo{Token: "t"})
		err := o.write(config, nil, io.Discard)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: got %v", tc.management, err)
		}
	}
	got, err := clientcmd.LoadFromFile(o.output)
	if err != nil || got.Clusters["fleet/demo"].Server != "https://one:8443/k8s/clusters/c-m-b" {
		t.Errorf("the file holds %+v (%v)", got, err)
	}
}

// A user keeps the file that root adds a context to.
func TestKubeconfigOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to other users")
	}
	config := proxied(client.ObjectKey{Namespace: "fleet", Name: "demo"}, settings.Settings{ServerURL: "https://hub"}, "c-m-a",
		&clientcmdapi.AuthInfo{Token: "t"})
	for _, tc := range []struct{ directory, want int }{{1234, 1234}, {0, 0}} {
		dir := t.TempDir()
		path := filepath.Join(dir, "config")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Chown(path, 1234, 1234), os.Chown(dir, tc.directory, tc.directory)); err != nil {
			t.Fatal(err)
		}
		if err := (&kubeconfigOptions{output: path, merge: true}).write(config, nil, io.Discard); err != nil {
			t.Fatal(err)
		}
		if got := statOf(path); int(got.Uid) != tc.want || int(got.Gid) != tc.want {
			t.Errorf("in a directory of %d, the file belongs to %d:%d", tc.directory, got.Uid, got.Gid)
		}
	}
}

// What is no file is not replaced, and a token that could not be written is named.
func TestKubeconfigIsNotWritten(t *testing.T) {
	config := proxied(client.ObjectKey{Namespace: "fleet", Name: "demo"}, settings.Settings{ServerURL: "https://hub"}, "c-m-a",
		&clientcmdapi.AuthInfo{Token: "t"})
	socket := filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	o := &kubeconfigOptions{output: socket, issued: "token-x"}
	err = o.write(config, nil, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "not a regular file") || !strings.Contains(err.Error(), "hub tokens revoke token-x") {
		t.Errorf("got %v", err)
	}
	if info, err := os.Lstat(socket); err != nil || info.Mode().IsRegular() {
		t.Errorf("the socket is %v (%v)", info, err)
	}
}

func TestKubeconfigFlags(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"kubeconfig"}, "kubeconfig needs one argument: <namespace>/<cluster>"},
		{[]string{"kubeconfig", "a/b", "--merge"}, "--merge needs --output"},
		{[]string{"kubeconfig", "a/b", "--output", os.DevNull}, "it is not a regular file"},
		{[]string{"kubeconfig", "a/b", "--ttl", "1h"}, "give that, too"},
		{[]string{"kubeconfig", "a/b", "--static", "--ttl", "9999h"}, "--ttl 9999h0m0s is not between 1m and 2160h0m0s"},
		{[]string{"token", "--server", "http://x"}, `--server: must be the https URL of a hub, got "http://x"`},
		{[]string{"token", "--server", "https://x"}, "--cluster is required"},
		{[]string{"token", "--server", "https://x", "--cluster", "c"}, "--kubeconfig is required"},
		{[]string{"token", "--server", "https://x", "--cluster", "c", "--kubeconfig", "k", "--certificate-authority-data", "-"},
			"must be base64"},
		{[]string{"tokens", "revoke"}, "needs the name of a token"},
		{[]string{"tokens", "list", "a"}, `"a" is not <namespace>/<cluster>`},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(tc.args, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%v: got %d %s", tc.args, code, &stderr)
		}
	}
}
