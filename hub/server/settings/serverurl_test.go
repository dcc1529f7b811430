package settings

import (
	"strings"
	"testing"
)

// TestParseServerURL: a URL is written into every machine, and one that leads to no gateway cannot be corrected there.
func TestParseServerURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://hub.example.com": "https://hub.example.com", "https://hub.example.com//": "https://hub.example.com",
		"https://hub:8443/": "https://hub:8443", "https://[2001:db8::1]:8443": "https://[2001:db8::1]:8443",
	} {
		if got, err := ParseServerURL(text); err != nil || got != want {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"": "must begin with https://", "http://hub": "must begin with https://", "hub:8443": "must begin with https://",
		"https://hub/drover": "without a path", "https://hub/drover/": "without a path", "https://hub?a=b": "without a path, a query",
		"https://hub/?": "a query", "https://hub#a": "a fragment", "https://hub#": "a fragment", "https://": "<host>", "https://:8443": "<host>",
		"https://hub:": "<host>:<port>", "https://hub:port": "it is not a URL", "https://a b": "it is not a URL",
		"https://me:secret@hub": "without a user", "https://me:secret@hub:port": "it is not a URL",
	} {
		got, err := ParseServerURL(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

// TestCheckRegistry: with an invalid registry no machine could pull an image.
func TestCheckRegistry(t *testing.T) {
	for registry, valid := range map[string]bool{
		"": true, "registry.example.com": true, "registry.example.com:5000": true, "registry.example.com/mirror": true, "[fd00::1]:5000": true,
		"https://registry.example.com": false, "registry.example.com/": false, "registry.example.com//mirror": false, "my registry": false,
		"user@registry.example.com": false,
	} {
		if err := CheckRegistry(registry); (err == nil) != valid {
			t.Errorf("%q: got %v", registry, err)
		}
	}
}
