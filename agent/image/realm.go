package image

import (
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// realmPath stands, on the host of an endpoint, for the token server that the endpoint names in WWW-Authenticate.
const realmPath = "/.drover-realm/"

var realmParameter = regexp.MustCompile(`(?i)\brealm="([^"]*)"`)

// hideRealm replaces a token server at a private address by realmPath. go-containerregistry refuses such addresses, lest a registry on the
// internet reach into a private network; a registry that is itself addressed by a private IP legitimately has its token server there.
// Link-local addresses, as those of cloud metadata, stay refused, and so does a registry on the internet that names a private address.
func (t *transport) hideRealm(response *http.Response) {
	if response.StatusCode != http.StatusUnauthorized || !isPrivateIP(t.endpoint.url.Hostname()) {
		return
	}
	for i, challenge := range response.Header.Values("WWW-Authenticate") {
		found := realmParameter.FindStringSubmatch(challenge)
		if found == nil {
			continue
		}
		realm, err := url.Parse(found[1])
		if err != nil || realm.Host == t.endpoint.url.Host || realm.Scheme != "https" && realm.Scheme != t.endpoint.url.Scheme ||
			!isPrivateIP(realm.Hostname()) {
			continue
		}
		t.mu.Lock()
		t.realm = realm
		t.mu.Unlock()
		own := url.URL{Scheme: realm.Scheme, Host: t.endpoint.url.Host, Path: realmPath}
		response.Header["Www-Authenticate"][i] = strings.Replace(challenge, found[0], `realm="`+own.String()+`"`, 1)
	}
}

func isPrivateIP(host string) bool {
	ip := net.ParseIP(host)
	return ip.IsPrivate() || ip.IsLoopback()
}

// redirectToRealm sends a request for realmPath to the token server instead. It returns false for any other request.
func (t *transport) redirectToRealm(request *http.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.realm == nil || request.URL.Path != realmPath {
		return false
	}
	query := t.realm.Query()
	maps.Copy(query, request.URL.Query())
	target := *t.realm
	target.RawQuery = query.Encode()
	request.URL, request.Host = &target, target.Host
	return true
}
