package clusteragent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mastersGroup may do everything, and no rule of the cluster can take that from it. The hub may speak for it only where the cluster's
// owner has said so.
const mastersGroup = "system:masters"

// What the hub may say all the same: its own name, and the group of everybody who is known.
const (
	hubUser            = "system:drover:hub"
	authenticatedGroup = "system:authenticated"
)

const (
	userHeader  = "Impersonate-User"
	groupHeader = "Impersonate-Group"
	// impersonation is what the names of those headers begin with.
	impersonation = "Impersonate-"
	// tokenProtocol is how browsers hand over a token, for they cannot set headers of a WebSocket.
	tokenProtocol = "base64url.bearer.authorization.k8s.io."
	protocols     = "Sec-Websocket-Protocol"
)

// checkUser tells why a request cannot be made in the name that it gives.
func (a *api) checkUser(header http.Header) error {
	if users := header.Values(userHeader); len(users) != 1 || users[0] == "" {
		return errors.New("a request through the cluster's agent must name one user in " + userHeader)
	}
	if user := header.Get(userHeader); reserved(user) && user != hubUser {
		return fmt.Errorf("the cluster's agent does not speak for the user %s: such names belong to this cluster's own parts", user)
	}
	for _, group := range header.Values(groupHeader) {
		switch {
		case group == mastersGroup && !a.allowed[group]:
			return fmt.Errorf("the cluster's agent does not speak for the group %s; it was started without --allow-group %s", group, group)
		case reserved(group) && group != authenticatedGroup && !a.allowed[group]:
			return fmt.Errorf("the cluster's agent does not speak for the group %s: such names belong to this cluster's own parts", group)
		}
	}
	return nil
}

// reserved tells of names that Kubernetes and kubeadm give to their own parts, ServiceAccounts and nodes among them. Whoever the hub speaks
// for has others: it puts "drover:hub:" before those of its own Kubernetes.
func reserved(name string) bool {
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "kubeadm:")
}

// forward makes the request that the Kubernetes API gets. The agent's own credential comes later, in the transport.
func forward(r *httputil.ProxyRequest, target *url.URL) {
	r.SetURL(target)
	out := r.Out.Header
	for name := range out {
		// X-Remote- is how a trusted front proxy names the user. The agent is none, and it must not look like one.
		if name == "Authorization" || name == "Cookie" || name == "Proxy-Authorization" || strings.HasPrefix(name, "X-Remote-") {
			delete(out, name)
		}
	}
	// Whoever has the name of a header put into Connection has it dropped on the way. The user must arrive, or the request would be made in the
	// name of the agent itself.
	for name, values := range r.In.Header {
		if strings.HasPrefix(name, impersonation) {
			out[name] = values
		}
	}
	// The API server's audit log tells where a user is.
	if from := r.In.Header["X-Forwarded-For"]; from != nil {
		out["X-Forwarded-For"] = from
	}
	dropTokenProtocol(out)
}

// dropTokenProtocol removes credentials from among the protocols that a WebSocket offers.
func dropTokenProtocol(header http.Header) {
	if len(header[protocols]) == 0 {
		return
	}
	var kept []string
	for _, value := range header[protocols] {
		for protocol := range strings.SplitSeq(value, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, tokenProtocol) {
				kept = append(kept, protocol)
			}
		}
	}
	delete(header, protocols)
	if len(kept) > 0 {
		header.Set(protocols, strings.Join(kept, ", "))
	}
}

// writeStatus answers as the Kubernetes API does, so that its clients show the message.
func writeStatus(w http.ResponseWriter, code int, message string) {
	reason := metav1.StatusReasonForbidden
	if code == http.StatusServiceUnavailable {
		reason = metav1.StatusReasonServiceUnavailable
	}
	raw, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Message: message, Reason: reason, Code: int32(code)}) // plain fields can always be encoded
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(raw)
}
