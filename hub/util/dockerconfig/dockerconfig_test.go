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
