package nodedriver

import (
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
)

// proxyVariables of the environment say through which proxy programs reach the internet.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}

// Proxy returns the proxy settings of this process's environment, which drivers have too.
func Proxy() map[string]string {
	out := map[string]string{}
	for _, name := range proxyVariables {
		value := os.Getenv(name)
		if value == "" {
			value = os.Getenv(strings.ToLower(name))
		}
		if value != "" {
			out[name] = value
		}
	}
	return out
}

// proxyEnvironment is Proxy as environment variables.
func proxyEnvironment() []string {
	proxy := Proxy()
	var env []string
	for _, name := range slices.Sorted(maps.Keys(proxy)) {
		env = append(env, name+"="+proxy[name])
	}
	return env
}

// proxySecrets are the passwords of proxies, which must not appear in messages and logs. A proxy may be written without a scheme.
func proxySecrets() (out []string) {
	for _, value := range Proxy() {
		if !strings.Contains(value, "://") {
			value = "http://" + value
		}
		if proxy, err := url.Parse(value); err == nil {
			if password, set := proxy.User.Password(); set {
				out = append(out, password, proxy.User.String())
			}
		}
	}
	return out
}
