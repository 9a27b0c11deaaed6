
# Arguments of install.ps1: [CODE [--to DIR] [--service | --no-service] [FLAG...]]
#
# Installs the connector in %LOCALAPPDATA%\Postern. With a pairing code it also pairs this
# machine; the remaining flags are those of "connector pair". --service installs
# the service without a question and needs an administrator, --no-service runs the
# connector in the foreground.
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
	$program = Join-Path $to 'connector.exe'
	if (Test-Path $program) { Move-Item -Force $program "$program.old" } # it may be running
	Expand-Archive -Force $zip $to
	Remove-Item $zip
}

function Set-Client {
	$to = Join-Path ([IO.Path]::GetTempPath()) ([IO.Path]::GetRandomFileName())
	$otherwise = "To set up the client by hand, open the page of a model: $console/models"
	try {
		Get-Connector $to
		& (Join-Path $to 'connector.exe') use @args --gateway ($console -replace '/console$')
		if ($LASTEXITCODE -ne 0) { throw 'The client is not set up.' }
	} finally { Remove-Item -Recurse -Force -ErrorAction SilentlyContinue $to }
}

function Install-Connector {
	$code = ''
	$to = Join-Path $env:LOCALAPPDATA 'Postern'
	$service = ''
	$flags = @()
	for ($i = 0; $i -lt $args.Count; $i++) {
		if ($i -eq 0 -and $args[$i] -like 'PAIR-*') { $code = $args[$i] }
		elseif ($args[$i] -eq '--service') { $service = 'yes' }
		elseif ($args[$i] -eq '--no-service') { $service = 'no' }
		elseif ($args[$i] -eq '--to') { $i++; $to = $args[$i] }
		else { $flags += $args[$i] }
	}

	Get-Connector $to
	$path = [Environment]::GetEnvironmentVariable('Path', 'User')
	if (($path -split ';') -notcontains $to) { [Environment]::SetEnvironmentVariable('Path', "$path;$to", 'User') }
	$program = Join-Path $to 'connector.exe'
	Write-Host "Installed $(& $program --version | Select-Object -First 1) in $to"
	if (-not $code) { return }

	& $program pair $gateway $code --no-run @flags
	if ($LASTEXITCODE -ne 0) { throw 'This machine is not paired.' }
	if (-not $service -and (Read-Host 'Run the connector as a service, which starts with this machine? [Y/n]') -notlike 'n*') { $service = 'yes' }
	if ($service -eq 'yes') { & $program service install } else { & $program run }
}

if ($self -eq 'use.ps1') { Set-Client @args } else { Install-Connector @args }
