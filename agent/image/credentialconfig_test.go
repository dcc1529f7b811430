package image

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
)

func TestDecodeProviders(t *testing.T) {
	tests := map[string]struct{ raw, err string }{
		"v1":       {raw: oneProvider},
		"v1beta1":  {raw: strings.ReplaceAll(oneProvider, "k8s.io/v1", "k8s.io/v1beta1")},
		"v1alpha1": {raw: strings.ReplaceAll(oneProvider, "k8s.io/v1", "k8s.io/v1alpha1")},
		"JSON": {raw: `{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[{"name":"a",` +
			`"matchImages":["a.b"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1","args":["x"],"env":[{` +
			`"name":"A","value":"b"}]}]}`},
		"no YAML": {raw: "a: [", err: "decoding: error converting YAML to JSON"},
		"a version": {raw: strings.Replace(oneProvider, "config.k8s.io/v1", "config.k8s.io/v2", 1),
			err: `apiVersion: must be kubelet.config.k8s.io/v1, got "kubelet.config.k8s.io/v2"`},
		"empty": {raw: " ", err: `apiVersion: must be kubelet.config.k8s.io/v1, got ""` + "\n" +
			`kind: must be CredentialProviderConfig, got ""` + "\n" +
			"providers: must not be empty; remove the file to use none"},
		"no durations": {raw: "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: a\n" +
			"  defaultCacheDuration: 1s\n- name: b\n  defaultCacheDuration: 1 day\n- name: c\n  defaultCacheDuration: 12\n",
			err: "providers[1].defaultCacheDuration: must be a duration with its unit, such as 12h, got 1 day\n" +
				"providers[2].defaultCacheDuration: must be a duration with its unit, such as 12h, got 12"},
		"faults": {
			raw: "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: ../sh\n  apiVersion: v1\n  " +
				"matchImages: ['a[', '']\n  env: [{name: 'A=B'}]\n" +
				"- name: x\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  defaultCacheDuration: -1s\n- name: x\n  apiVersion: " +
				"credentialprovider.kubelet.k8s.io/v1\n  defaultCacheDuration: 1s\n  matchImages: [a]\n",
			err: `providers[0].name: must be the name of a file, got "../sh"
providers[0].apiVersion: must be credentialprovider.kubelet.k8s.io/v1, got "v1"
providers[0].matchImages[0]: must be a pattern like *.example.com:5000/path, got "a["
providers[0].matchImages[1]: must be a pattern like *.example.com:5000/path, got ""
providers[0].defaultCacheDuration: must be set; 0s disables caching
providers[0].env[0].name: must be the name of a variable, got "A=B"
providers[1].matchImages: must not be empty
providers[1].defaultCacheDuration: must not be negative, got -1s
providers[2].name: duplicate name "x"`,
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
	if providers, err := s.readProviders(); err != nil || providers != nil {
		t.Errorf("without a file: %v, %v", providers, err)
	}
	write("a.yaml", oneProvider)
	write("b.yml", strings.Replace(oneProvider, "name: ecr", "name: gcr", 1))
	write("c.txt", "no")
	s.CredentialProviderConfig = dir
	if providers, err := s.readProviders(); err != nil || len(providers) != 2 {
		t.Errorf("folder: %v, %v", providers, err)
	}
	write("c.json", strings.Replace(oneProvider, "name: ecr", "name: ''", 1))
	_, err := stage(t, s, "a/b")
	if want := "credential providers " + filepath.Join(dir, "c.json") +
		`: providers[0].name: must be the name of a file, got ""`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	write("c.json", oneProvider)
	if _, err := stage(t, s, "a/b"); err == nil || !strings.Contains(err.Error(), `provider "ecr" is in `+filepath.Join(dir,
		"a.yaml")+" too") {
		t.Errorf("got %v", err)
	}
}

// TestDockerConfig takes credentials from where "docker login" leaves them.
func TestDockerConfig(t *testing.T) {
	h := newRegistry(t, false)
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
