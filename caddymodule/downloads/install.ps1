
# Arguments: [CODE [--to DIR] [--service | --no-service] [FLAG...]]
#
# Installs the connector in %LOCALAPPDATA%\Postern. With a pairing code it also pairs this
# machine; the remaining flags are those of "connector pair". --service installs
# the service without a question and needs an administrator, --no-service runs the
# connector in the foreground.

function Main {
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
