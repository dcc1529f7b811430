package clusteragent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mastersGroup bypasses authorization. The hub may impersonate it only if the owner of the cluster has allowed that.
const mastersGroup = "system:masters"

// Reserved names that the hub may impersonate: its own user, and the group of all authenticated users.
const (
	hubUser            = "system:drover:hub"
	authenticatedGroup = "system:authenticated"
)

const (
	userHeader  = "Impersonate-User"
	groupHeader = "Impersonate-Group"
	// impersonatePrefix is the prefix of all headers of impersonation.
	impersonatePrefix = "Impersonate-"
	// tokenProtocol is the prefix of the WebSocket subprotocol with a bearer token, which browsers send since they cannot set headers.
	tokenProtocol  = "base64url.bearer.authorization.k8s.io."
	protocolHeader = "Sec-Websocket-Protocol"
)

// checkUser returns an error if the agent does not impersonate the user or a group of a request.
func (a *api) checkUser(header http.Header) error {
	if users := header.Values(userHeader); len(users) != 1 || users[0] == "" {
		return errors.New("requests through the cluster agent need exactly one user in " + userHeader)
	}
	if user := header.Get(userHeader); reserved(user) && user != hubUser {
		return fmt.Errorf("the cluster agent does not impersonate user %s: the prefix is reserved for this cluster", user)
	}
	for _, group := range header.Values(groupHeader) {
		switch {
		case group == mastersGroup && !slices.Contains(a.allowedGroups, group):
			return fmt.Errorf("the cluster agent does not impersonate group %s without --allow-group %s", group, group)
		case reserved(group) && group != authenticatedGroup && !slices.Contains(a.allowedGroups, group):
			return fmt.Errorf("the cluster agent does not impersonate group %s: the prefix is reserved for this cluster", group)
		}
	}
	return nil
}

// reserved is true for names of Kubernetes (ServiceAccounts and Nodes among them) and kubeadm. The hub adds the prefix "drover:hub:" to
// such names of its own Kubernetes.
func reserved(name string) bool {
	return strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "kubeadm:")
}

// forward rewrites a request for the Kubernetes API. The transport adds the agent's own credential.
func forward(r *httputil.ProxyRequest, target *url.URL) {
	r.SetURL(target)
	out := r.Out.Header
	for name := range out {
		// X-Remote- headers are those of an authenticating front proxy, which the agent is not.
		if name == "Authorization" || name == "Cookie" || name == "Proxy-Authorization" || strings.HasPrefix(name, "X-Remote-") {
			delete(out, name)
		}
	}
	// ReverseProxy drops headers that are named in Connection. Without the headers of impersonation, the request would be made as the agent.
	for name, values := range r.In.Header {
		if strings.HasPrefix(name, impersonatePrefix) {
			out[name] = values
		}
	}
	// The API server writes it into the audit log.
	if from := r.In.Header["X-Forwarded-For"]; from != nil {
		out["X-Forwarded-For"] = from
	}
	dropTokenProtocol(out)
}

// dropTokenProtocol removes bearer tokens from the subprotocols of a WebSocket.
func dropTokenProtocol(header http.Header) {
	if len(header[protocolHeader]) == 0 {
		return
	}
	var kept []string
	for _, value := range header[protocolHeader] {
		for protocol := range strings.SplitSeq(value, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, tokenProtocol) {
				kept = append(kept, protocol)
			}
		}
	}
	delete(header, protocolHeader)
	if len(kept) > 0 {
		header.Set(protocolHeader, strings.Join(kept, ", "))
	}
}

// writeStatus responds with a Status, as the Kubernetes API does, so that its clients show the message.
func writeStatus(w http.ResponseWriter, code int, message string) {
	var reason metav1.StatusReason // Kubernetes has none for the other codes
	switch code {
	case http.StatusForbidden:
		reason = metav1.StatusReasonForbidden
	case http.StatusServiceUnavailable:
		reason = metav1.StatusReasonServiceUnavailable
	}
	raw, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Message: message, Reason: reason, Code: int32(code)}) // cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(raw)
}
