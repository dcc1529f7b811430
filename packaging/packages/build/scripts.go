package build

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2"
)

//go:embed files
var embedded embed.FS

// services are the units of the packages, and the directories of their scripts.
var services = map[string]struct{ unit, scripts string }{
	agentName: {"rancher-system-agent.service", "agent"},
	hubName:   {"drover-hub.service", "hub"},
}

// includeLine names a file of files/scripts, which replaces it.
var includeLine = regexp.MustCompile(`(?m)^@include ([a-z.]+)\n`)

// Script returns a script of a package as the package manager runs it: deb.postinst, rpm.post and so on. root is put before each path; it
// is empty but for tests.
func Script(name, script, root string) ([]byte, error) {
	service := services[name]
	raw, err := embedded.ReadFile("files/scripts/" + service.scripts + "/" + script)
	if err != nil {
		return nil, fmt.Errorf("package %s has no script %s: %w", name, script, err)
	}
	var missing error
	text := includeLine.ReplaceAllStringFunc(string(raw), func(line string) string {
		part, err := embedded.ReadFile("files/scripts/" + includeLine.FindStringSubmatch(line)[1])
		if err != nil {
			missing = err
		}
		return string(part)
	})
	if missing != nil {
		return nil, missing
	}
	return []byte(strings.NewReplacer("@UNIT@", service.unit, "@PACKAGE@", name, "@ROOT@", root).Replace(text)), nil
}

// addScripts gives a package its scripts. It has those that there is a file of.
func (s *stage) addScripts(info *nfpm.Info) error {
	for script, field := range map[string]*string{
		"deb.preinst": &info.Scripts.PreInstall, "deb.postinst": &info.Scripts.PostInstall,
		"deb.prerm": &info.Scripts.PreRemove, "deb.postrm": &info.Scripts.PostRemove,
		"rpm.post": &info.Scripts.PostInstall, "rpm.preun": &info.Scripts.PreRemove, "rpm.postun": &info.Scripts.PostRemove,
		"rpm.posttrans": &info.RPM.Scripts.PostTrans,
	} {
		format, _, _ := strings.Cut(script, ".")
		if _, err := embedded.ReadFile("files/scripts/" + services[info.Name].scripts + "/" + script); err != nil || format != s.format {
			continue
		}
		text, err := Script(info.Name, script, "")
		if err != nil {
			return err
		}
		*field = filepath.Join(s.dir, script)
		if err := os.WriteFile(*field, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}
