package service

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// folder is a folder with descriptions of services, one in each file.
type folder struct {
	home  string // pattern of the home folders of its users; "": it has system services
	files string // pattern, below home
	parse func(text string) (command []string, config string)
}

// folders returns the folders of a system's service managers. They include those of other
// users, which the superuser can read.
func folders(system, root, home string) []folder {
	switch system {
	case "linux":
		return []folder{
			{"", filepath.Join(root, "etc/systemd/system/*.service"), parseUnit},
			{"", filepath.Join(root, "usr/lib/systemd/system/*.service"), parseUnit}, // of packages
			{home, ".config/systemd/user/*.service", parseUnit},
			{filepath.Join(root, "home/*"), ".config/systemd/user/*.service", parseUnit},
		}
	case "darwin":
		return []folder{
			{"", filepath.Join(root, "Library/LaunchDaemons/*.plist"), parsePropertyList},
			{home, "Library/LaunchAgents/*.plist", parsePropertyList},
			{filepath.Join(root, "Users/*"), "Library/LaunchAgents/*.plist", parsePropertyList},
		}
	}
	return nil
}

// findIn returns the services in some folders whose command is `PROGRAM run`. Plan.Home is the
// home of a user's service. Files that cannot be read are left out.
func findIn(folders []folder) (plans []Plan) {
	seen := make(map[string]bool)
	for _, f := range folders {
		homes := []string{""}
		if f.home != "" {
			homes, _ = filepath.Glob(f.home) // the patterns are valid
		}
		for _, home := range homes {
			files, _ := filepath.Glob(filepath.Join(home, f.files))
			for _, file := range files {
				name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
				text, err := read(file)
				if err != nil || seen[home+"/"+name] {
					continue
				}
				seen[home+"/"+name] = true
				command, config := f.parse(string(text))
				if executable := runs(command); executable != "" && CheckName(name) == nil {
					plans = append(plans, Plan{Name: name, Executable: executable, Config: config, User: home != "", Home: home})
				}
			}
		}
	}
	return plans
}

// maxDescription bounds the description of a service, in bytes.
const maxDescription = 64 << 10

// read reads the description of a service. The superuser also reads the homes of others, where
// a pipe or a device must not block it or fill its memory.
func read(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxDescription {
		return nil, errors.Join(os.ErrInvalid, err)
	}
	return io.ReadAll(io.LimitReader(file, maxDescription))
}

// runs returns the path of the program, without symbolic links, if the command is
// `PROGRAM run`. Otherwise it returns "".
func runs(command []string) string {
	if len(command) < 2 || command[1] != "run" {
		return ""
	}
	executable, _ := filepath.EvalSymlinks(command[0])
	return executable
}

// configIn returns the configuration file in a command, or "".
func configIn(command []string) string {
	if i := slices.Index(command, "--config"); i >= 0 && i+1 < len(command) {
		return command[i+1]
	}
	return ""
}

// credentials is the folder in which systemd puts copies of files for a service.
const credentials = "${CREDENTIALS_DIRECTORY}/"

// parseUnit returns the command of a unit of systemd, and the configuration file. If systemd
// passes a copy to the service, that is the original file.
func parseUnit(text string) (command []string, config string) {
	copies := make(map[string]string) // paths by the names of copies
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "ExecStart":
			command = words(value)
		case "LoadCredential":
			name, path, _ := strings.Cut(strings.ReplaceAll(value, "%%", "%"), ":")
			copies[name] = path
		}
	}
	config = configIn(command)
	if name, ok := strings.CutPrefix(config, credentials); ok {
		config = copies[name]
	}
	return command, config
}

// words splits a command line of a unit: it reverses quote.
func words(line string) (words []string) {
	plain := strings.NewReplacer("%%", "%", "$$", "$")
	var word strings.Builder
	begun, quoted := false, false
	for i := 0; i <= len(line); i++ {
		switch {
		case i == len(line) || line[i] == ' ' && !quoted:
			if begun {
				words = append(words, plain.Replace(word.String()))
				word.Reset()
			}
			begun = false
		case line[i] == '"':
			begun, quoted = true, !quoted
		case line[i] == '\\' && i+1 < len(line):
			i++
			fallthrough
		default:
			begun = true
			word.WriteByte(line[i])
		}
	}
	return words
}

// parsePropertyList returns the command of a service of launchd, and its configuration.
func parsePropertyList(text string) (command []string, config string) {
	decoder := xml.NewDecoder(strings.NewReader(text))
	key, inside := "", false
	for {
		token, err := decoder.Token()
		if err != nil {
			return command, configIn(command)
		}
		switch t := token.(type) {
		case xml.StartElement:
			var value string
			switch {
			case t.Name.Local == "array":
				inside = key == "ProgramArguments"
			case t.Name.Local != "key" && (t.Name.Local != "string" || !inside):
			case decoder.DecodeElement(&value, &t) != nil:
				return nil, ""
			case inside:
				command = append(command, value)
			default:
				key = value
			}
		case xml.EndElement:
			inside = inside && t.Name.Local != "array"
		}
	}
}
