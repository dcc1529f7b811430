package userauth

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

const (
	// HubUser is the user as whom the hub's own controllers reach the clusters that it manages.
	HubUser = "system:drover:hub"
	// ForeignPrefix is put before names that mean something else in every cluster.
	ForeignPrefix = "drover:hub:"

	// credentialPrefix begins the extra fields with which an API server tells by which credential it has known a user.
	credentialPrefix = "authentication.kubernetes.io/"
)

// reservedPrefixes begin names that a cluster gives to parts of its own: Kubernetes ("system:", ServiceAccounts among them), kubeadm, whose
// administrators are the group kubeadm:cluster-admins, and Drover.
var reservedPrefixes = []string{"system:", "kubeadm:", "drover:"}

// Downstream is how a user of the management cluster is known in a cluster that the hub manages: by the same name and groups, but for
// those that mean something of its own in every cluster. The ServiceAccount "system:serviceaccount:team:robot" of the management cluster
// is not the one of the same name elsewhere, and so becomes the user "drover:hub:system:serviceaccount:team:robot". masters reports whether
// administrators of the management cluster are administrators of the other one as well; where not, their group gets another name, too.
func Downstream(u user.Info, masters bool) *user.DefaultInfo {
	if u.GetName() == HubUser {
		groups := u.GetGroups()
		if !masters {
			groups = slices.DeleteFunc(slices.Clone(groups), func(group string) bool { return group == user.SystemPrivilegedGroup })
		}
		return &user.DefaultInfo{Name: HubUser, UID: u.GetUID(), Groups: groups}
	}
	return Impersonated(u, masters)
}

// Impersonated is how somebody whom a user asks to be is known in a cluster that the hub manages: as Downstream, but the hub's own name is
// nobody's to take.
func Impersonated(u user.Info, masters bool) *user.DefaultInfo {
	out := &user.DefaultInfo{Name: foreign(u.GetName()), UID: u.GetUID()}
	for _, group := range u.GetGroups() {
		if group == user.AllAuthenticated || group == user.SystemPrivilegedGroup && masters {
			out.Groups = append(out.Groups, group)
			continue
		}
		out.Groups = append(out.Groups, foreign(group))
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
	if slices.ContainsFunc(reservedPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
		return ForeignPrefix + name
	}
	return name
}
