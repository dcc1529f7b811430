package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	plugin "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/testenv/fake"
)

const oneProvider = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ["*.dkr.ecr.*.amazonaws.com"]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
`

// answer is what a provider writes.
func answer(t *testing.T, version string, of plugin.PluginCacheKeyType, duration string, auth map[string]plugin.AuthConfig) []byte {
	t.Helper()
	body := map[string]any{"apiVersion": "credentialprovider.kubelet.k8s.io/" + version, "kind": "CredentialProviderResponse",
		"cacheKeyType": of, "auth": auth}
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
	if err := machine.WriteFile("/etc/providers.yaml", []byte(config), fs.WithMode(0o600)); err != nil {
		t.Fatal(err)
	}
	return New(Options{Host: machine, Log: slog.New(slog.DiscardHandler), CacheDirectory: "/cache",
		CredentialProviderConfig:       "/etc/providers.yaml",
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
	for _, version := range apiVersions {
		var ran []run.Command
		s := withProvider(t, strings.ReplaceAll(oneProvider, "k8s.io/v1",
			"k8s.io/"+version)+"  args: [get, --fast]\n  env: [{name: A, value: own}]\n",
			func(_ context.Context, command run.Command) (run.Result, error) {
				ran = append(ran, command)
				return run.Result{Stdout: answer(t, version, plugin.ImagePluginCacheKeyType, "", map[string]plugin.AuthConfig{
					"*.dkr.ecr.*.amazonaws.com": {Username: "wide", Password: "1"}, "1.dkr.ecr.eu.amazonaws.com/team": {Username: "team", Password: "2"},
					"1.dkr.ecr.eu.amazonaws.com": {Username: "host", Password: "3"}, "2.dkr.ecr.eu.amazonaws.com": {Username: "other", Password: "4"},
				})}, nil
			})
		got := lookupFor(t, s, "1.dkr.ecr.eu.amazonaws.com/team/image")
		if diff := cmp.Diff([]string{"team:2", "host:3", "wide:1"}, got); diff != "" {
			t.Error(diff)
		}
		want := []run.Command{{Path: "/opt/bin/ecr", Args: []string{"get", "--fast"}, Env: []string{"PATH=/bin", "A=agent", "A=own"}, Dir: "/",
			Timeout: time.Minute,
			Stdin: []byte(`{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/` + version +
				`","image":"1.dkr.ecr.eu.amazonaws.com/team/image"}`)}}
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
		s := withProvider(t, strings.Replace(oneProvider, "*.dkr.ecr.*.amazonaws.com", "docker.io", 1),
			func(_ context.Context, command run.Command) (run.Result, error) {
				if !strings.Contains(string(command.Stdin), `"image":"docker.io/library/nginx"`) {
					t.Errorf("asked %s", command.Stdin)
				}
				return run.Result{Stdout: answer(t, "v1", plugin.GlobalPluginCacheKeyType, "",
					map[string]plugin.AuthConfig{key: {Username: "u", Password: "p"}})}, nil
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
				s := withProvider(t, oneProvider, func(context.Context, run.Command) (run.Result, error) {
					runs++
					return run.Result{Stdout: answer(t, "v1", test.of, test.duration,
						map[string]plugin.AuthConfig{"*.dkr.ecr.*.amazonaws.com": {Username: "u"}})}, nil
				})
				var got []int
				for _, image := range []string{"1.dkr.ecr.eu.amazonaws.com/a", "1.dkr.ecr.eu.amazonaws.com/a", "1.dkr.ecr.eu.amazonaws.com/b",
					"2.dkr.ecr.eu.amazonaws.com/a"} {
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
		result run.Result
		err    error
		want   string
	}{
		"exit code": {result: run.Result{ExitCode: 3, Stdout: []byte("s3cret"), Stderr: []byte("s3cret")}, want: "exit code 3"},
		"too slow":  {result: run.Result{ExitCode: -1, TimedOut: true, Stderr: []byte("s3cret")}, want: "timed out after 1m0s"},
		"missing":   {result: run.Result{ExitCode: -1}, err: errors.New("no such file"), want: "no such file"},
		"no JSON":   {result: run.Result{Stdout: []byte("s3cret")}, want: "output is not a CredentialProviderResponse"},
		"other version": {result: run.Result{Stdout: answer(t, "v1beta1", "Image", "", map[string]plugin.AuthConfig{"a": {Password: "s3cret"}})},
			want: "output is not a CredentialProviderResponse of credentialprovider.kubelet.k8s.io/v1"},
		"no cache key": {result: run.Result{Stdout: answer(t, "v1", "Pod", "", map[string]plugin.AuthConfig{"a": {Password: "s3cret"}})},
			want: "cacheKeyType of the output must be Image, Registry or Global"},
		"bad duration": {result: run.Result{Stdout: answer(t, "v1", "Image", "s3cret", nil)},
			want: "output is not a CredentialProviderResponse"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			var log strings.Builder
			s := withProvider(t, oneProvider, func(context.Context, run.Command) (run.Result, error) { return test.result, test.err })
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
		s := withProvider(t, oneProvider+fmt.Sprintf("  tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, "+
			"requireServiceAccount: %v}\n", requires),
			func(context.Context, run.Command) (run.Result, error) {
				return run.Result{Stdout: answer(t, "v1", "Image", "", map[string]plugin.AuthConfig{"*.dkr.ecr.*.amazonaws.com": {Username: "u"}})}, nil
			})
		if got := lookupFor(t, s, "1.dkr.ecr.eu.amazonaws.com/a"); len(got) != want {
			t.Errorf("%v: got %v", requires, got)
		}
	}
}

// TestPullWithCredentialsOfAProgram runs a real program, with the request on its standard input, against a registry over HTTP. The first
// credentials that it gives are refused, so the next ones are tried.
func TestPullWithCredentialsOfAProgram(t *testing.T) {
	h := newRegistry(t, false)
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
	var log strings.Builder
	s := newStore(t, "")
	useProvider(t, s, h.host(), `test "$1" = get || exit 1
test "$REGION" = eu || exit 2
grep -q '"image":"`+h.host()+`/team/image"' || exit 3
cat <<END
{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Registry",
 "auth":{"`+h.host()+`/team":{"username":"old","password":"x"},"`+h.host()+`":{"username":"good","password":"s3cret"}}}
END
`)
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

// TestPasswordIsReplaced: the password that a provider has given is refused while it may still be cached. The next try
// runs the provider again.
func TestPasswordIsReplaced(t *testing.T) {
	t.Parallel()
	h := newRegistry(t, false)
	push(t, h, "team/image:v1", twoLayers(t))
	var accepted atomic.Value
	accepted.Store("first")
	h.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if _, password, _ := r.BasicAuth(); password != accepted.Load() {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
	for _, kind := range pluginCacheKeys {
		s := newStore(t, "")
		useProvider(t, s, h.host(), `cat <<END
{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"`+string(kind)+`",
 "auth":{"`+h.host()+`":{"username":"u","password":"$(cat "${0%/*}/password")"}}}
END
`)
		for _, password := range []string{"first", "second"} {
			if err := os.WriteFile(filepath.Join(s.CredentialProviderBinDirectory, "password"), []byte(password), 0o600); err != nil {
				t.Fatal(err)
			}
			accepted.Store(password)
			_, err := stage(t, s, h.host()+"/team/image:v1")
			if refused := password == "second"; refused != (err != nil && strings.Contains(err.Error(), "401")) {
				t.Errorf("%s, %s password: got %v", kind, password, err)
			}
		}
		got, err := stage(t, s, h.host()+"/team/image:v1")
		checkStaged(t, got, err)
	}
}

// useProvider lets a store run a script as the provider "login" for the images of a registry.
func useProvider(t *testing.T, s *Store, registry, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "login"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: "+
		"login\n  matchImages: [\""+registry+"\"]\n"+
		"  defaultCacheDuration: 1h\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  args: [get]\n  env: [{name: REGION, value: eu}"+
		"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.CredentialProviderConfig, s.CredentialProviderBinDirectory, s.Environment = config, dir, []string{"PATH=/usr/bin:/bin"}
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
	f.Add([]byte(`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Image",`+
		`"cacheDuration":"1h","auth":{"a.b":{"username":"u","password":"p"}}}`), "a.b/c")
	f.Fuzz(func(_ *testing.T, raw []byte, image string) {
		if response, err := decodeResponse(raw, "credentialprovider.kubelet.k8s.io/v1"); err == nil {
			_ = matching(response.Auth, []string{image})
		}
	})
}
