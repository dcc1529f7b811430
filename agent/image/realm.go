package image

import (
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// realmPath stands, below the host of an endpoint, for the token server that the endpoint names.
const realmPath = "/.drover-realm/"

var realmParameter = regexp.MustCompile(`(?i)\brealm="([^"]*)"`)

// shelter makes a token server at a private address one that the registry library talks to. The library refuses those, lest a registry on
// the internet sends it around in a private network; a machine whose registry has no name has its token server there for good reason. Addresses
// that lead to a cloud's metadata stay refused, and so does a registry on the internet that names a private address.
func (t *transport) shelter(response *http.Response) {
	if response.StatusCode != http.StatusUnauthorized {
		return
	}
	if address := net.ParseIP(t.endpoint.url.Hostname()); address == nil || !address.IsPrivate() && !address.IsLoopback() {
		return
	}
	for i, challenge := range response.Header.Values("WWW-Authenticate") {
		found := realmParameter.FindStringSubmatch(challenge)
		if found == nil {
			continue
		}
		realm, err := url.Parse(found[1])
		if err != nil || realm.Host == t.endpoint.url.Host || realm.Scheme != "https" && realm.Scheme != t.endpoint.url.Scheme {
			continue
		}
		if address := net.ParseIP(realm.Hostname()); address == nil || !address.IsPrivate() && !address.IsLoopback() {
			continue
		}
		t.mu.Lock()
		t.realm = realm
		t.mu.Unlock()
		own := url.URL{Scheme: realm.Scheme, Host: t.endpoint.url.Host, Path: realmPath}
		response.Header["Www-Authenticate"][i] = strings.Replace(challenge, found[0], `realm="`+own.String()+`"`, 1)
	}
}

// unshelter sends a request for the token server on to it, and tells whether it was one.
func (t *transport) unshelter(request *http.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.realm == nil || request.URL.Path != realmPath {
		return false
	}
	query := t.realm.Query()
	for key, values := range request.URL.Query() {
		query[key] = values
	}
	target := *t.realm
	target.RawQuery = query.Encode()
	request.URL, request.Host = &target, target.Host
	return true
}
