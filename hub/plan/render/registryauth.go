package render

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"strings"

	"github.com/drover-dev/drover/hub/api/references"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/dockerconfig"
)

// registryAuth reads the credentials for a registry from the Secret that a cluster names.
func (b *builder) registryAuth(field, host, name string) *registryAuth {
	field += ".authConfigSecretName"
	secret, ok := b.registrySecret(references.RegistryAuth, field, name)
	if !ok {
		return nil
	}
	var auth registryAuth
	switch secret.Type {
	case rkev1.AuthConfigSecretType:
		text := func(key string) string { return string(secret.Data[key]) }
		auth = registryAuth{
			Username: text("username"), Password: text("password"),
			IdentityToken: cmp.Or(text("identityToken"), text("identity_token")),
		}
		if auth.Auth, ok = encodedAuth(text("auth")); !ok {
			b.problems.fail(field, `Secret %q: key auth must be "<username>:<password>", in plain text or base64-encoded`, name)
			return nil
		}
	case "kubernetes.io/basic-auth":
		auth = registryAuth{Username: string(secret.Data["username"]), Password: string(secret.Data["password"])}
	case "kubernetes.io/dockerconfigjson":
		if auth, ok = dockerAuth(secret.Data[".dockerconfigjson"], host); !ok {
			b.problems.fail(field, "Secret %q holds no credentials for %s", name, host)
			return nil
		}
	}
	if auth == (registryAuth{}) {
		b.problems.fail(field, "Secret %q holds no credentials", name)
		return nil
	}
	return &auth
}

// encodedAuth returns the value of "auth" as containerd reads it from registries.yaml: "username:password" in base64. A value in plain text
// is encoded. It returns false for a value that holds no username and password.
func encodedAuth(value string) (string, bool) {
	value = strings.TrimSpace(value)
	if value == "" {
		return "", true
	}
	if decoded, err := base64.StdEncoding.DecodeString(value); err == nil {
		return value, bytes.ContainsRune(decoded, ':')
	}
	return base64.StdEncoding.EncodeToString([]byte(value)), strings.Contains(value, ":")
}

// dockerAuth finds a host's credentials in Docker's configuration file.
func dockerAuth(raw []byte, host string) (registryAuth, bool) {
	auth, ok := dockerconfig.Find(raw, host)
	return registryAuth(auth), ok
}
