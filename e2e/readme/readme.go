// Package readme reads the commands of the README and of other pages, for scenarios that run them as they stand there.
package readme

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The headings of README.md with commands that a scenario runs.
const (
	OneMachine    = "On one machine"
	Helm          = "With Helm"
	Clusterctl    = "With clusterctl"
	CreateCluster = "Create a cluster"
)

// Script returns the content of the first code block below a heading of README.md in the repository, with each word of replace changed to
// the one after it. A word that is not there is an error: the scenario and the README have come apart.
func Script(repo, heading string, replace ...string) (string, error) {
	return PageScript(repo, "README.md", heading, replace...)
}

// PageScript is Script for another page of the repository.
func PageScript(repo, page, heading string, replace ...string) (string, error) {
	content, err := os.ReadFile(filepath.Join(repo, page))
	if err != nil {
		return "", err
	}
	script := blocks(string(content))[heading]
	if len(script) == 0 {
		return "", fmt.Errorf("%s has no code block below the heading %q", page, heading)
	}
	for i := 0; i+1 < len(replace); i += 2 {
		if !strings.Contains(script[0], replace[i]) {
			return "", fmt.Errorf("%s does not have %q in the commands below %q", page, replace[i], heading)
		}
		script[0] = strings.ReplaceAll(script[0], replace[i], replace[i+1])
	}
	return script[0], nil
}

// blocks returns the contents of all code blocks by the heading above them.
func blocks(text string) map[string][]string {
	out := map[string][]string{}
	heading, inside := "", false
	var block strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```") && inside:
			out[heading] = append(out[heading], block.String())
			block.Reset()
			inside = false
		case strings.HasPrefix(line, "```"):
			inside = true
		case inside:
			block.WriteString(line)
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return out
}
