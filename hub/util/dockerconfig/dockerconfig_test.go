package dockerconfig

import "testing"

const file = `{"auths": {
	"https://registry.example.com:5000/v1/": {"username": "u", "password": "p", "email": "e"},
	"https://index.docker.io/v1/": {"auth": "dTpw"},
	"empty.example.com": {}
}, "credsStore": "secret"}`

func TestFind(t *testing.T) {
	for host, want := range map[string]Auth{
		"registry.example.com:5000": {Username: "u", Password: "p"}, "docker.io": {Auth: "dTpw"}, "registry.example.com": {},
	} {
		if got, ok := Find([]byte(file), host); got != want || ok != (want != Auth{}) {
			t.Errorf("%s: got %+v, %t", host, got, ok)
		}
	}
}

// TestOnly: credentials for other registries are not handed on.
func TestOnly(t *testing.T) {
	for host, want := range map[string]string{
		"registry.example.com:5000": `{"auths":{"https://registry.example.com:5000/v1/":{"username":"u","password":"p","email":"e"}}}`,
		"registry-1.docker.io":      `{"auths":{"https://index.docker.io/v1/":{"auth":"dTpw"}}}`,
		"empty.example.com":         "", "registry.example.com": "",
	} {
		if got, ok := Only([]byte(file), host); string(got) != want || ok != (want != "") {
			t.Errorf("%s: got %s, %t", host, got, ok)
		}
	}
	if got, ok := Only([]byte("{"), "docker.io"); ok || got != nil {
		t.Errorf("of what is no configuration: %s, %t", got, ok)
	}
}

const paths = `{"auths": {
	"registry.example.com/internal": {"username": "internal"},
	"registry.example.com/mirror": {"username": "mirror"},
	"https://registry.example.com/mirror/drover/": {"username": "drover"},
	"other.example.com/v2/internal": {"username": "other"}
}}`

// TestPaths: credentials for a path are for what is below it, and no others of the registry are handed on.
func TestPaths(t *testing.T) {
	for registry, want := range map[string]string{
		"registry.example.com/mirror": "mirror", "registry.example.com/mirror/rancher": "mirror", "registry.example.com/mirror/drover": "drover",
		"registry.example.com/mir": "", "registry.example.com/public": "", "registry.example.com": "drover", "other.example.com": "other",
		"other.example.com/public": "", "other.example.com/internal/a": "other",
	} {
		if got, ok := Find([]byte(paths), registry); got.Username != want || ok != (want != "") {
			t.Errorf("%s: got %+v, %t", registry, got, ok)
		}
	}
	for image, want := range map[string]string{
		"registry.example.com/mirror/a:v1":          `{"auths":{"registry.example.com/mirror":{"username":"mirror"}}}`,
		"registry.example.com/mirror@sha256:00":     `{"auths":{"registry.example.com/mirror":{"username":"mirror"}}}`,
		"registry.example.com/drover/cluster-agent": "",
		"other.example.com/internal:v1":             `{"auths":{"other.example.com/v2/internal":{"username":"other"}}}`,
		"registry.example.com/mirror/drover/cluster-agent:v1": `{"auths":{"https://registry.example.com/mirror/drover/":` +
			`{"username":"drover"},"registry.example.com/mirror":{"username":"mirror"}}}`,
	} {
		if got, ok := Only([]byte(paths), image); string(got) != want || ok != (want != "") {
			t.Errorf("%s: got %s, %t", image, got, ok)
		}
	}
}
