package userauth

import (
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// HubUser is the user as whom the hub's own controllers reach the clusters that it manages.
	HubUser = "system:drover:hub"
	// ForeignPrefix is put before names that mean something else in every cluster.
	ForeignPrefix = "drover:hub:"

	// reservedPrefix begins the names that Kubernetes gives to its own parts, ServiceAccounts among them.
	reservedPrefix = "system:"
	// credentialPrefix begins the extra fields with which an API server tells by which credential it has known a user.
	credentialPrefix = "authentication.kubernetes.io/"
)

// Downstream is how a user of the management cluster is known in a cluster that the hub manages: by the same name and groups, but for those
// that belong to one cluster only. The ServiceAccount "system:serviceaccount:team:robot" of the management cluster is not the one of the same
// name elsewhere, and so becomes the user "drover:hub:system:serviceaccount:team:robot". masters tells whether administrators of the
// management cluster are administrators of the other one as well; where not, their group gets another name, too.
func Downstream(u user.Info, masters bool) *user.DefaultInfo {
	name := func(name string) string {
		if name == user.SystemPrivilegedGroup && masters {
			return name
		}
		return foreign(name)
	}
	out := &user.DefaultInfo{Name: foreign(u.GetName()), UID: u.GetUID()}
	for _, group := range u.GetGroups() {
		out.Groups = append(out.Groups, name(group))
	}
	for key, values := range u.GetExtra() {
		if strings.HasPrefix(key, credentialPrefix) {
			continue
		}
		if out.Extra == nil {
			out.Extra = map[string][]string{}
		}
		out.Extra[key] = values
	}
	return out
}

func foreign(name string) string {
	if name == HubUser || name == user.AllAuthenticated || !strings.HasPrefix(name, reservedPrefix) {
		return name
	}
	return ForeignPrefix + name
}
