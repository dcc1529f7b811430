package clusteragent

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Whatever the Secret contains, the decoded credential is valid in a header.
func FuzzDecodeIdentity(f *testing.F) {
	f.Add([]byte(agentID), []byte("credential"), []byte("2026-11-22T21:37:19Z"), []byte("2026-11-22T13:37:19Z"))
	f.Add([]byte("?"), []byte("a\nb"), []byte("soon"), []byte(""))
	f.Fuzz(func(t *testing.T, agent, credential, expires, renew []byte) {
		i := decodeIdentity(&corev1.Secret{Data: map[string][]byte{agentKey: agent, credentialKey: credential, expiresKey: expires,
			renewKey: renew}})
		if !agentPattern.MatchString(i.Agent) || strings.ContainsFunc(i.Credential, notPrintable) {
			t.Errorf("it is %+v", i)
		}
	})
}

// No token gets through among protocols, and no protocol is lost.
func FuzzDropTokenProtocol(f *testing.F) {
	f.Add("v5.channel.k8s.io, "+tokenProtocol+"abc", "v4.channel.k8s.io")
	f.Add(",,", " ")
	f.Fuzz(func(t *testing.T, first, second string) {
		header := http.Header{protocolHeader: {first, second}}
		dropTokenProtocol(header)
		got := strings.Join(header[protocolHeader], ",")
		kept := 0
		for protocol := range strings.SplitSeq(first+","+second, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, tokenProtocol) {
				kept++
			}
		}
		for protocol := range strings.SplitSeq(got, ",") {
			if strings.HasPrefix(strings.TrimSpace(protocol), tokenProtocol) {
				t.Errorf("%q", got)
			}
		}
		if n := strings.Count(got, ",") + 1; kept > 0 && n != kept || kept == 0 && got != "" {
			t.Errorf("of %d protocols %q is left", kept, got)
		}
	})
}
