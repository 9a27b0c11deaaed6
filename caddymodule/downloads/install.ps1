
# Arguments of install.ps1: [CODE [--to DIR] [--service | --no-service] [FLAG...]]
#
# Installs the connector in %LOCALAPPDATA%\Postern. With a pairing code it also pairs this
# machine; the remaining flags are those of "connector pair". --service installs
# the service without a question and needs an administrator, --no-service runs the
# connector in the foreground.
#
# On a machine that has a connector, it replaces the program, keeps the configuration and the
# service, and restarts that.
#
# Arguments of use.ps1: CLIENT CODE [FLAG...]
#
# Sets up a client, such as claude, with a code of the console. The flags are those of "connector use". The connector
# is downloaded for that, and removed again.

$ErrorActionPreference = 'Stop'

# Get-Connector downloads, checks and unpacks the connector into a folder.
function Get-Connector($to) {
	$arch = $env:PROCESSOR_ARCHITEW6432
	if (-not $arch) { $arch = $env:PROCESSOR_ARCHITECTURE }
	$archive = $archives["windows/$($arch.ToLower())"]
	if (-not $archive) { throw "The gateway has no connector for windows/$arch. Its operator can add it with ./xcaddy.sh connectors in the gateway's clone. $otherwise" }

	New-Item -ItemType Directory -Force $to | Out-Null
	$zip = Join-Path $to 'connector.zip'
	Write-Host "Downloading $($archive.name)"
	curl.exe -fsSL @unverified -o $zip "$console/connectors/$($archive.name)"
	if ($LASTEXITCODE -ne 0) { throw "Cannot download $($archive.name)." }
	if ((Get-FileHash -Algorithm SHA256 $zip).Hash -ne $archive.sha256) {
		Remove-Item $zip
		throw "$($archive.name) is damaged: its SHA-256 differs from the gateway's. Try again."
	}
	Expand-Archive -Force $zip $to
	Remove-Item $zip
}

# New-Scratch returns a folder for temporary files.
function New-Scratch { Join-Path ([IO.Path]::GetTempPath()) ([IO.Path]::GetRandomFileName()) }

# Install-Program moves the program of a folder into its place, once it has started. Windows keeps the file of a
# running program, so the service is stopped first; its running answers have 30 seconds.
function Install-Program($from, $program) {
	$new = Join-Path $from 'connector.exe'
	& $new --version | Out-Null
	if ($LASTEXITCODE -ne 0) { throw 'The connector of the gateway does not start on this machine. Nothing has changed.' }
	$running = Get-Service $name -ErrorAction SilentlyContinue | Where-Object { $_.Status -ne 'Stopped' }
	if ($running -and $service -ne 'no') {
		Write-Host "Stopping the service $name; running requests may finish first."
		try { Stop-Service $name } catch { throw "Cannot stop the service ${name}: $_ Run this in PowerShell as administrator." }
	}
	try {
		if (Test-Path $program) { Move-Item -Force $program "$program.old" } # one in the foreground may run
		Move-Item $new $program
	} catch {
		if (-not (Test-Path $program) -and (Test-Path "$program.old")) { Move-Item "$program.old" $program }
		if ($running) { Start-Service $name } # if it was stopped
		throw
	}
	Remove-Item -Force -ErrorAction SilentlyContinue "$program.old"
}

# Restart-Connector restarts the service, and reports whether there is one. It fails with the reason if the service is
# not online.
function Restart-Connector($program) {
	if ($service -eq 'no' -or -not (Get-Service $name -ErrorAction SilentlyContinue)) { return $false }
	& $program service restart @config | Out-Host
	if ($LASTEXITCODE -ne 0) { throw 'The service is not online.' }
	return $true
}

function Set-Client {
	$to = New-Scratch
	$otherwise = "To set up the client by hand, open the page of a model: $console/models"
	try {
		Get-Connector $to
		& (Join-Path $to 'connector.exe') use @args --gateway ($console -replace '/console$')
		if ($LASTEXITCODE -ne 0) { throw 'The client is not set up.' }
	} finally { Remove-Item -Recurse -Force -ErrorAction SilentlyContinue $to }
}

function Install-Connector {
	$name = 'postern-connector'
	$code = ''
	$to = Join-Path $env:LOCALAPPDATA 'Postern'
	$service = ''
	$config = @()
	$flags = @()
	for ($i = 0; $i -lt $args.Count; $i++) {
		if ($i -eq 0 -and $args[$i] -like 'PAIR-*') { $code = $args[$i] }
		elseif ($args[$i] -eq '--service') { $service = 'yes' }
		elseif ($args[$i] -eq '--no-service') { $service = 'no' }
		elseif ($args[$i] -eq '--to') { $i++; $to = $args[$i] }
		elseif ($args[$i] -in '--config', '-c') { $i++; $config = @('--config', $args[$i]) }
		else { $flags += $args[$i] }
	}

	$scratch = New-Scratch
	$program = Join-Path $to 'connector.exe'
	$before = Test-Path $program
	New-Item -ItemType Directory -Force $to | Out-Null
	$pairing = 0
	try {
		Get-Connector $scratch
		if ($code) { # before the service stops: a person approves this
			& (Join-Path $scratch 'connector.exe') pair $gateway $code --no-run @config @flags
			$pairing = $LASTEXITCODE
			if ($pairing -notin 0, 4) { throw 'This machine is not paired.' }
			if ($pairing -eq 4) { Write-Host 'This machine stays paired.' }
		}
		Install-Program $scratch $program
	} finally { Remove-Item -Recurse -Force -ErrorAction SilentlyContinue $scratch }
	$path = [Environment]::GetEnvironmentVariable('Path', 'User')
	if (($path -split ';') -notcontains $to) { [Environment]::SetEnvironmentVariable('Path', "$path;$to", 'User') }
	Write-Host "Installed $(& $program --version | Select-Object -First 1) in $to"
	$restarted = Restart-Connector $program
	if (-not $code) {
		if ($before -and -not $restarted) { Write-Host 'If the connector runs, restart it: it still runs the former program.' }
		return
	}
	# A new token in the usual file is for the service. Another file is for another connector.
	if ($restarted -and ($pairing -eq 4 -or -not $config)) { return }
	if (-not $service -and (Read-Host 'Run the connector as a service, which starts with this machine? [Y/n]') -notlike 'n*') { $service = 'yes' }
	if ($service -ne 'yes') { & $program run @config; return }
	& $program service install --no-start @config
	if ($LASTEXITCODE -ne 0) { throw 'The service is not installed.' }
	[void](Restart-Connector $program)
}

if ($self -eq 'use.ps1') { Set-Client @args } else { Install-Connector @args }
