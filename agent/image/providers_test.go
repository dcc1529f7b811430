package image

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	plugin "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fake"
)

const oneProvider = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ["*.dkr.ecr.*.amazonaws.com"]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
`

func TestDecodeProviders(t *testing.T) {
	tests := map[string]struct{ raw, err string }{
		"v1":        {raw: oneProvider},
		"v1beta1":   {raw: strings.ReplaceAll(oneProvider, "k8s.io/v1", "k8s.io/v1beta1")},
		"v1alpha1":  {raw: strings.ReplaceAll(oneProvider, "k8s.io/v1", "k8s.io/v1alpha1")},
		"JSON":      {raw: `{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[{"name":"a","matchImages":["a.b"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1","args":["x"],"env":[{"name":"A","value":"b"}]}]}`},
		"no YAML":   {raw: "a: [", err: "decoding: error converting YAML to JSON"},
		"a version": {raw: strings.Replace(oneProvider, "config.k8s.io/v1", "config.k8s.io/v2", 1), err: `apiVersion: is "kubelet.config.k8s.io/v2": write kubelet.config.k8s.io/v1`},
		"empty": {raw: " ", err: `apiVersion: is "": write kubelet.config.k8s.io/v1` + "\n" + `kind: is "": write CredentialProviderConfig` + "\n" +
			"providers: is empty: name one, or remove the file"},
		"faults": {
			raw: "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: ../sh\n  apiVersion: v1\n  matchImages: ['a[', '']\n  env: [{name: 'A=B'}]\n" +
				"- name: x\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  defaultCacheDuration: -1s\n- name: x\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  defaultCacheDuration: 1s\n  matchImages: [a]\n",
			err: `providers[0].name: "../sh" is not the name of a file
providers[0].apiVersion: is "v1": write credentialprovider.kubelet.k8s.io/v1
providers[0].matchImages[0]: "a[" is no pattern like *.example.com:5000/path
providers[0].matchImages[1]: "" is no pattern like *.example.com:5000/path
providers[0].defaultCacheDuration: is missing: write 0s to keep nothing
providers[0].env[0].name: "A=B" is no name of a variable
providers[1].matchImages: is empty: name the images that the provider is for
providers[1].defaultCacheDuration: -1s is less than nothing
providers[2].name: "x" is there twice`,
		},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			providers, err := decodeProviders([]byte(test.raw))
			switch {
			case test.err == "" && (err != nil || len(providers) != 1):
				t.Errorf("got %v, %v", providers, err)
			case test.err != "" && (err == nil || !strings.HasPrefix(err.Error(), test.err)):
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestMatchImage(t *testing.T) {
	tests := []struct {
		pattern, image string
		want           bool
	}{
		{"registry.io", "registry.io/a/b", true},
		{"registry.io", "sub.registry.io/a/b", false},
		{"*.registry.io", "sub.registry.io/a/b", true},
		{"*.io", "sub.registry.io/a/b", false},
		{"*.*.registry.io", "a.b.registry.io/c", true},
		{"app*.k8s.io", "app1.k8s.io/c", true},
		{"app*.k8s.io", "web.k8s.io/c", false},
		{"k8s.*", "k8s.io/c", true},
		{"registry.io:8080/path", "registry.io:8080/path/image", true},
		{"registry.io:8080/path", "registry.io/path/image", false},
		{"registry.io", "registry.io:8080/path", false},
		{"registry.io/path", "registry.io/other", false},
		{"registry.io/path", "registry.io/pathological", true}, // as the kubelet does it
		{"*.registry.io/p*", "a.registry.io/path", false},
		{"123456789.dkr.ecr.*.amazonaws.com", "123456789.dkr.ecr.eu-west-1.amazonaws.com/x", true},
	}
	for _, test := range tests {
		if got := matchImage(test.pattern, test.image); got != test.want {
			t.Errorf("%s and %s: %v", test.pattern, test.image, got)
		}
	}
}

// answer is what a provider writes.
func answer(t *testing.T, version string, of plugin.PluginCacheKeyType, duration string, auth map[string]plugin.AuthConfig) []byte {
	t.Helper()
	body := map[string]any{"apiVersion": "credentialprovider.kubelet.k8s.io/" + version, "kind": "CredentialProviderResponse", "cacheKeyType": of, "auth": auth}
	if duration != "" {
		body["cacheDuration"] = duration
	}
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// withProvider makes a store on a fake machine on which one provider can be run.
func withProvider(t *testing.T, config string, program fake.Program) *Store {
	t.Helper()
	machine := fake.New()
	machine.Program("ecr", program)
	if err := machine.WriteFile("/etc/providers.yaml", []byte(config), host.Private(0o600)); err != nil {
		t.Fatal(err)
	}
	return New(Options{Host: machine, Log: slog.New(slog.DiscardHandler), CacheDirectory: "/cache", CredentialProviderConfig: "/etc/providers.yaml",
		CredentialProviderBinDirectory: "/opt/bin", Environment: []string{"PATH=/bin", "A=agent"}})
}

func lookupFor(t *testing.T, s *Store, image string) []string {
	t.Helper()
	repo, err := name.NewRepository(image)
	if err != nil {
		t.Fatal(err)
	}
	find, err := s.credentials(Registries{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, found := range find(t.Context(), repo) {
		config, err := found.Authorization()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, config.Username+":"+config.Password)
	}
	return got
}

// TestProviderIsRun shows that B13 cannot happen: the plugin is run as the kubelet runs it, and what it answers is used.
func TestProviderIsRun(t *testing.T) {
	for _, version := range versions {
		var ran []host.Command
		s := withProvider(t, strings.ReplaceAll(oneProvider, "k8s.io/v1", "k8s.io/"+version)+"  args: [get, --fast]\n  env: [{name: A, value: own}]\n",
			func(_ context.Context, command host.Command) (host.Result, error) {
				ran = append(ran, command)
				return host.Result{Stdout: answer(t, version, plugin.ImagePluginCacheKeyType, "", map[string]plugin.AuthConfig{
					"*.dkr.ecr.*.amazonaws.com": {Username: "wide", Password: "1"}, "1.dkr.ecr.eu.amazonaws.com/team": {Username: "team", Password: "2"},
					"1.dkr.ecr.eu.amazonaws.com": {Username: "host", Password: "3"}, "2.dkr.ecr.eu.amazonaws.com": {Username: "other", Password: "4"},
				})}, nil
			})
		got := lookupFor(t, s, "1.dkr.ecr.eu.amazonaws.com/team/image")
		if diff := cmp.Diff([]string{"team:2", "host:3", "wide:1"}, got); diff != "" {
			t.Error(diff)
		}
		want := []host.Command{{Path: "/opt/bin/ecr", Args: []string{"get", "--fast"}, Env: []string{"PATH=/bin", "A=agent", "A=own"}, Dir: "/", Timeout: time.Minute,
			Stdin: []byte(`{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/` + version + `","image":"1.dkr.ecr.eu.amazonaws.com/team/image"}`)}}
		if diff := cmp.Diff(want, ran); diff != "" {
			t.Error(diff)
		}
		if got := lookupFor(t, s, "registry.example.com/a"); got != nil || len(ran) != 1 {
			t.Errorf("got %v after %d runs", got, len(ran))
		}
	}
}

func TestProviderForDockerHub(t *testing.T) {
	for _, key := range []string{"docker.io", "index.docker.io", "https://index.docker.io/v1/"} {
		s := withProvider(t, strings.Replace(oneProvider, "*.dkr.ecr.*.amazonaws.com", "docker.io", 1), func(_ context.Context, command host.Command) (host.Result, error) {
			if !strings.Contains(string(command.Stdin), `"image":"docker.io/library/nginx"`) {
				t.Errorf("asked %s", command.Stdin)
			}
			return host.Result{Stdout: answer(t, "v1", plugin.GlobalPluginCacheKeyType, "", map[string]plugin.AuthConfig{key: {Username: "u", Password: "p"}})}, nil
		})
		if diff := cmp.Diff([]string{"u:p"}, lookupFor(t, s, "nginx")); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
	}
}

func TestProviderIsCached(t *testing.T) {
	tests := map[string]struct {
		of       plugin.PluginCacheKeyType
		duration string
		wait     time.Duration
		// runs after asking for the same image, one of the same registry, and one of another registry.
		want []int
	}{
		"by image":          {of: plugin.ImagePluginCacheKeyType, want: []int{1, 1, 2, 3}},
		"by registry":       {of: plugin.RegistryPluginCacheKeyType, want: []int{1, 1, 1, 2}},
		"for all":           {of: plugin.GlobalPluginCacheKeyType, want: []int{1, 1, 1, 1}},
		"not at all":        {of: plugin.GlobalPluginCacheKeyType, duration: "0s", want: []int{1, 2, 3, 4}},
		"for a minute":      {of: plugin.GlobalPluginCacheKeyType, duration: "1m", wait: 61 * time.Second, want: []int{1, 2, 3, 4}},
		"for an hour":       {of: plugin.GlobalPluginCacheKeyType, duration: "1h", wait: time.Minute, want: []int{1, 1, 1, 1}},
		"as the config has": {of: plugin.GlobalPluginCacheKeyType, wait: 13 * time.Hour, want: []int{1, 2, 3, 4}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs := 0
				s := withProvider(t, oneProvider, func(context.Context, host.Command) (host.Result, error) {
					runs++
					return host.Result{Stdout: answer(t, "v1", test.of, test.duration, map[string]plugin.AuthConfig{"*.dkr.ecr.*.amazonaws.com": {Username: "u"}})}, nil
				})
				var got []int
				for _, image := range []string{"1.dkr.ecr.eu.amazonaws.com/a", "1.dkr.ecr.eu.amazonaws.com/a", "1.dkr.ecr.eu.amazonaws.com/b", "2.dkr.ecr.eu.amazonaws.com/a"} {
					lookupFor(t, s, image)
					got = append(got, runs)
					time.Sleep(test.wait)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestProviderThatFailsGivesNothingAway(t *testing.T) {
	tests := map[string]struct {
		result host.Result
		err    error
		want   string
	}{
		"exit code":     {result: host.Result{ExitCode: 3, Stdout: []byte("s3cret"), Stderr: []byte("s3cret")}, want: "it ended with exit code 3"},
		"too slow":      {result: host.Result{ExitCode: -1, TimedOut: true, Stderr: []byte("s3cret")}, want: "it took longer than 1m0s"},
		"missing":       {result: host.Result{ExitCode: -1}, err: errors.New("no such file"), want: "no such file"},
		"no JSON":       {result: host.Result{Stdout: []byte("s3cret")}, want: "its answer is no CredentialProviderResponse"},
		"other version": {result: host.Result{Stdout: answer(t, "v1beta1", "Image", "", map[string]plugin.AuthConfig{"a": {Password: "s3cret"}})}, want: "its answer is not a CredentialProviderResponse of credentialprovider.kubelet.k8s.io/v1"},
		"no cache key":  {result: host.Result{Stdout: answer(t, "v1", "Pod", "", map[string]plugin.AuthConfig{"a": {Password: "s3cret"}})}, want: "cacheKeyType of its answer is none of Image, Registry and Global"},
		"bad duration":  {result: host.Result{Stdout: answer(t, "v1", "Image", "s3cret", nil)}, want: "its answer is no CredentialProviderResponse"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			var log strings.Builder
			s := withProvider(t, oneProvider, func(context.Context, host.Command) (host.Result, error) { return test.result, test.err })
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			if got := lookupFor(t, s, "1.dkr.ecr.eu.amazonaws.com/a"); len(got) != 0 {
				t.Errorf("got %v", got)
			}
			if !strings.Contains(log.String(), test.want) || strings.Contains(log.String(), "s3cret") {
				t.Errorf("logged %s", log.String())
			}
		})
	}
}

func TestProviderThatNeedsAServiceAccount(t *testing.T) {
	for requires, want := range map[bool]int{true: 0, false: 1} {
		s := withProvider(t, oneProvider+fmt.Sprintf("  tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: %v}\n", requires),
			func(context.Context, host.Command) (host.Result, error) {
				return host.Result{Stdout: answer(t, "v1", "Image", "", map[string]plugin.AuthConfig{"*.dkr.ecr.*.amazonaws.com": {Username: "u"}})}, nil
			})
		if got := lookupFor(t, s, "1.dkr.ecr.eu.amazonaws.com/a"); len(got) != want {
			t.Errorf("%v: got %v", requires, got)
		}
	}
}

func TestProviderConfigs(t *testing.T) {
	s := newStore(t, "")
	dir := t.TempDir()
	write := func(file, raw string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(raw), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.CredentialProviderConfig = filepath.Join(dir, "none.yaml")
	if providers, err := s.providers(); err != nil || providers != nil {
		t.Errorf("without a file: %v, %v", providers, err)
	}
	write("a.yaml", oneProvider)
	write("b.yml", strings.Replace(oneProvider, "name: ecr", "name: gcr", 1))
	write("c.txt", "no")
	s.CredentialProviderConfig = dir
	if providers, err := s.providers(); err != nil || len(providers) != 2 {
		t.Errorf("folder: %v, %v", providers, err)
	}
	write("c.json", strings.Replace(oneProvider, "name: ecr", "name: ''", 1))
	_, err := stage(t, s, "a/b")
	if want := "credential providers " + filepath.Join(dir, "c.json") + `: providers[0].name: "" is not the name of a file`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	write("c.json", oneProvider)
	if _, err := stage(t, s, "a/b"); err == nil || !strings.Contains(err.Error(), `provider "ecr" is in `+filepath.Join(dir, "a.yaml")+" too") {
		t.Errorf("got %v", err)
	}
}

// TestPullWithCredentialsOfAProgram runs a real program, with the request on its standard input, against a registry over HTTP. The first
// credentials that it gives are refused, so the next ones are tried.
func TestPullWithCredentialsOfAProgram(t *testing.T) {
	h := newHub(t, false)
	push(t, h, "team/image:v1", twoLayers(t))
	var mu sync.Mutex
	seen := map[string]int{}
	h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		user, password, _ := r.BasicAuth()
		mu.Lock()
		seen[user]++
		mu.Unlock()
		if user != "good" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	dir := t.TempDir()
	script := `#!/bin/sh
test "$1" = get || exit 1
test "$REGION" = eu || exit 2
grep -q '"image":"` + h.host() + `/team/image"' || exit 3
cat <<END
{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Registry",
 "auth":{"` + h.host() + `/team":{"username":"old","password":"x"},"` + h.host() + `":{"username":"good","password":"s3cret"}}}
END
`
	if err := os.WriteFile(filepath.Join(dir, "login"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: login\n  matchImages: [\""+h.host()+"\"]\n"+
		"  defaultCacheDuration: 1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  args: [get]\n  env: [{name: REGION, value: eu}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s := newStore(t, "")
	s.CredentialProviderConfig, s.CredentialProviderBinDirectory, s.Environment = config, dir, []string{"PATH=/usr/bin:/bin"}
	s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	got, err := stage(t, s, h.host()+"/team/image:v1")
	checkStaged(t, got, err)
	if seen["old"] == 0 || seen["good"] == 0 {
		t.Errorf("came as %v", seen)
	}
	if strings.Contains(log.String(), "s3cret") {
		t.Errorf("logged %s", log.String())
	}
}

// TestDockerConfig takes credentials from where "docker login" leaves them.
func TestDockerConfig(t *testing.T) {
	h := newHub(t, false)
	push(t, h, "a/b:v1", twoLayers(t))
	h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if user, password, _ := r.BasicAuth(); user != "drover" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("DOCKER_CONFIG", filepath.Join(home, ".docker"))
	if err := os.MkdirAll(filepath.Join(home, ".docker"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, h.host(), base64.StdEncoding.EncodeToString([]byte("drover:secret")))
	if err := os.WriteFile(filepath.Join(home, ".docker", "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, "")
	if _, err := stage(t, s, h.host()+"/a/b:v1"); err == nil || !strings.Contains(err.Error(), "401 Unauthorized") {
		t.Errorf("without a keychain: %v", err)
	}
	s.Keychain = authn.DefaultKeychain
	got, err := stage(t, s, h.host()+"/a/b:v1")
	checkStaged(t, got, err)
}

func FuzzDecodeProviders(f *testing.F) {
	f.Add([]byte(oneProvider), "1.dkr.ecr.eu.amazonaws.com/a")
	f.Fuzz(func(t *testing.T, raw []byte, image string) {
		providers, err := decodeProviders(raw)
		if err != nil {
			return
		}
		for _, p := range providers {
			if filepath.Dir(filepath.Join("/bin", p.Name)) != "/bin" {
				t.Errorf("%q leads out of the folder", p.Name)
			}
			for _, pattern := range p.MatchImages {
				_ = matchImage(pattern, image)
			}
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Image","cacheDuration":"1h","auth":{"a.b":{"username":"u","password":"p"}}}`), "a.b/c")
	f.Fuzz(func(_ *testing.T, raw []byte, image string) {
		if response, err := decodeResponse(raw, "credentialprovider.kubelet.k8s.io/v1"); err == nil {
			_ = fitting(response.Auth, []string{image})
		}
	})
}
